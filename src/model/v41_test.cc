// The V4.1 forward step against what the official code computes from the same tiny checkpoint (tests/golden/v41-tiny/README.md says how
// much each comparison catches).
#include "v41_official_order.h"
#include "v41_tiny.h"

namespace deepinfer::model {
namespace {

TEST(V41, LogitsOfEveryLength) {
  const GoldenFile golden(kTiny + "/prefill.safetensors");
  const auto model = tiny_model();
  for (const int length : {1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64, 200}) {
    const auto tokens = tokens_of(golden, length == 200 ? "tokens200" : "tokens");
    Runner runner(*model);
    const auto logits = runner.run(tokens, 0, length);
    expect_within(logits, "prefill", "logits." + std::to_string(length));
  }
}

// What indexers and routers choose in whole runs: as the official code, but for the row in which a bf16 number fell the other way.
TEST(V41, ChoicesOfEveryLength) {
  const GoldenFile golden(kTiny + "/prefill.safetensors");
  const auto model = tiny_model();
  for (const int length : {1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64, 200}) {
    Recorder recorder;
    model->observe(&recorder);
    Runner runner(*model);
    runner.run(tokens_of(golden, length == 200 ? "tokens200" : "tokens"), 0, length);
    int num_rows = 0, num_equal = 0;
    const auto compare = [&](const std::string& name, std::span<const int64_t> ours, bool in_order) {
      const auto theirs = golden.integers(name);
      const size_t rows = static_cast<size_t>(length), width = ours.size() / rows, golden_width = theirs.size() / rows;
      for (size_t r = 0; r < rows; ++r) {
        std::vector<int64_t> a(ours.begin() + static_cast<ptrdiff_t>(r * width), ours.begin() + static_cast<ptrdiff_t>((r + 1) * width));
        std::vector<int64_t> b(theirs.begin() + static_cast<ptrdiff_t>(r * golden_width), theirs.begin() + static_cast<ptrdiff_t>((r + 1) * golden_width));
        std::erase(a, -1);
        std::erase(b, -1);
        if (!in_order) std::ranges::sort(a), std::ranges::sort(b);
        num_rows += 1;
        num_equal += a == b;
      }
    };
    int lists = 0;
    for (const int layer : {1, 3, 4, 6}) {
      const std::string name = "index." + std::to_string(length) + "." + std::to_string(layer);
      if (!golden.has(name)) continue;  // of short prompts: no pair is complete
      compare(name, recorder.integers_[Recorder::key("index", layer)], true);
      lists += 1;
    }
    EXPECT_GE(lists, length == 1 ? 2 : 4);
    for (int layer = 0; layer < 8; ++layer)
      compare("router." + std::to_string(length) + "." + std::to_string(layer), recorder.integers_[Recorder::key("router_idx", layer)], false);
    const double share = static_cast<double>(num_equal) / num_rows;
    EXPECT_GE(share, length <= 64 ? 0.995 : 0.97) << length;
    RecordProperty("equal_choices_" + std::to_string(length), num_equal);
  }
}

// Share of equal bytes.
double equal_share(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  EXPECT_EQ(a.size(), b.size());
  size_t equal = 0;
  for (size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i];
  return static_cast<double>(equal) / static_cast<double>(a.size());
}

// Feeds the golden's numbers to all operations but the hyper-connections' sums, which have the official code's order.
class FedInOfficialOrder : public Recorder {
 public:
  explicit FedInOfficialOrder(const GoldenFile& golden) { feed(&golden); }
  void floats(std::string_view name, int32_t layer, int64_t rows, int64_t width, float* data) override {
    const bool coefficients = name.starts_with("hc.");
    if (coefficients) order_.floats(name, layer, rows, width, data);
    Recorder::floats(name, layer, rows, width, data);
    if (!coefficients) order_.floats(name, layer, rows, width, data);
  }

 private:
  OfficialOrder order_;
};

// The sharp test: every operation on the golden's own input, so that a fault cannot hide in the noise of those before it. All bf16
// numbers of the run are those of the official code, and all bytes that caches keep.
class V41Isa : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Isas, V41Isa, testing::ValuesIn(available_isas().begin(), available_isas().end()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

TEST_P(V41Isa, EveryOperationOnGoldenInputs) {
  const GoldenFile golden(kTiny + "/layers33.safetensors");
  const auto model = tiny_model(10.0f, GetParam());
  FedInOfficialOrder recorder(golden);
  const bool as_measured = falls_as_measured(GetParam());
  model->observe(&recorder);
  Runner runner(*model);
  const auto logits = runner.run(tokens_of(golden, "tokens"), 0, 33);
  EXPECT_LE(max_difference(logits, golden.floats("logits")), 1e-5f);
  int num_exact = 0;
  for (const std::string& name : golden.names()) {
    const auto found = recorder.floats_.find(name == "embed" || name.starts_with("final_") ? Recorder::key(name, -1) : name);
    if (found == recorder.floats_.end()) continue;
    const auto expected = golden.floats(name);
    if (golden.dtype(name) == "BF16") {
      EXPECT_LE(rows_apart(found->second, expected, expected.size() / 33, 0).size(), as_measured ? 0u : 1u) << name;
      num_exact += 1;
    } else {
      EXPECT_LE(relative(found->second, expected), 1e-6) << name;
    }
  }
  EXPECT_EQ(num_exact, 8 * 6 + 2 + 3);
  for (int layer = 0; layer < 8; ++layer) {
    const std::string key = Recorder::key("router_idx", layer);
    EXPECT_EQ(recorder.integers_[key], golden.integers(key)) << key;
  }
  for (const char* key : {"index.1", "index.3", "index.4", "index.6"}) EXPECT_EQ(recorder.integers_[key], golden.integers(key)) << key;
  const V41Layout layout(model->config());
  for (const auto& [source, layer, rows] : {std::tuple(0, 1, 16), {1, 3, 16}, {2, 4, 33}}) {
    std::vector<uint8_t> codes, scales, key_codes, key_scales;
    for (int32_t row = 0; row < rows; ++row) {
      const auto main = layout.main_row(runner.block(0), source, row), key = layout.index_key(runner.block(0), source, row);
      codes.insert(codes.end(), main.codes, main.codes + 32);
      scales.insert(scales.end(), main.scales, main.scales + 4);
      key_codes.insert(key_codes.end(), key.codes, key.codes + 16);
      key_scales.insert(key_scales.end(), key.scales, key.scales + 1);
    }
    const double least = as_measured ? 1 : 0.99;
    EXPECT_GE(equal_share(codes, golden.bytes(Recorder::key("main_codes", layer))), least);
    EXPECT_GE(equal_share(scales, golden.bytes(Recorder::key("main_scales", layer))), least);
    EXPECT_GE(equal_share(key_codes, golden.bytes(Recorder::key("index_key_codes", layer))), least);
    EXPECT_GE(equal_share(key_scales, golden.bytes(Recorder::key("index_key_scales", layer))), least);
  }
}

// Whole networks whose hyper-connections add as the official code's library does: 1e-6 from the golden at every position but those that ties
// explain. In the run of 15 tokens the golden itself is .03 to .05 from its own longer runs of the same tokens, whose library chose another
// order for so few rows. At position 62 two candidate blocks of layer 4 have the same score, 1.59375; 63 sees it.
TEST_P(V41Isa, LogitsInTheOfficialOrder) {
  if (!falls_as_measured(GetParam())) GTEST_SKIP() << "other ties";
  const GoldenFile golden(kTiny + "/prefill.safetensors");
  const auto model = tiny_model(10.0f, GetParam());
  OfficialOrder order;
  model->observe(&order);
  for (const int length : {1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64}) {
    Runner runner(*model);
    const auto logits = runner.run(tokens_of(golden, "tokens"), 0, length);
    std::vector<int> tied;
    if (length == 15) tied = {10, 11, 12, 13, 14};
    if (length == 64) tied = {62, 63};
    EXPECT_EQ(rows_apart(logits, golden.floats("logits." + std::to_string(length)), 320, 1e-5f), tied) << length;
  }
  const auto shorter = golden.floats("logits.15"), longer = golden.floats("logits.16");
  EXPECT_EQ(rows_apart(shorter, std::span(longer).first(shorter.size()), 320, 1e-5f), (std::vector{10, 11, 12, 13, 14}));
}

// How far a number is from the middle between two bf16 numbers, in the last places of f32.
double places_from_tie(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  const double steps = std::fabs(x) / std::ldexp(1.0, exponent - 8);
  return std::fabs(steps - std::floor(steps) - 0.5) * 65536;
}

// What the first sublayer of a layer does with the golden's streams of a row.
struct Streams {
  Streams(const GoldenFile& golden, int layer, int row) : y(128), before(4 * 128), after(4 * 128), mixed(128) {
    const auto checkpoint = Safetensors::open(kTiny).value();
    const V41Config config = v41_config_from_json(read_file(kTiny + "/config.json"), "config.json").value();
    const V41Block block = bind_v41(*checkpoint, config).value().layers[static_cast<size_t>(layer)];
    const auto copy = [&](const std::string& name, float* to, int64_t width) { std::copy_n(golden.floats(name).begin() + row * width, width, to); };
    const std::string entering = Recorder::key(golden.has(Recorder::key("X_engram", layer)) ? "X_engram" : "X", golden.has(Recorder::key("X_engram", layer)) ? layer : layer - 1);
    if (layer == 0)
      for (int k = 0; k < 4; ++k) copy("embed", before.data() + k * 128, 128);
    else copy(entering, before.data(), 4 * 128);
    copy(Recorder::key("attn_out", layer), y.data(), 128);
    const HyperParams params{config.hidden_size, config.rms_norm_eps, config.hc_eps, config.hc_sinkhorn_iters};
    float m[kHyperDots];
    HyperCoefficients coefficients;
    after = before;
    hyper_dots(params, block.hc_attn, before.data(), 1, 0, kHyperDots, m, default_isa());
    hyper_coefficients(params, block.hc_attn, before.data(), m, coefficients, default_isa());
    hyper_expand(params, coefficients, y.data(), 0, 128, after.data(), default_isa());
    hyper_collapse(params, coefficients.pre, after.data(), mixed.data(), default_isa());
    weigh(block.hc_attn, params);
    for (int i = 0; i < 128; ++i) norm[i] = to_f32(block.ffn_norm[i]);
  }

  double stream(int k, size_t i) const {
    double sum = post[k] * static_cast<double>(y[i]);
    for (size_t j = 0; j < 4; ++j) sum += comb[j][k] * static_cast<double>(before[j * 128 + i]);
    return sum;
  }
  double normed(size_t i) const {
    double squares = 0;
    for (const float u : mixed) squares += static_cast<double>(u) * static_cast<double>(u);
    return static_cast<double>(mixed[i]) / std::sqrt(squares / 128) * static_cast<double>(norm[i]);
  }

  std::vector<float> y, before, after, mixed;
  double post[4], comb[4][4];
  float norm[128];

 private:
  void weigh(const HyperWeights& w, const HyperParams& params) {
    double squares = 0, m[kHyperDots] = {};
    for (size_t k = 0; k < before.size(); ++k) {
      squares += static_cast<double>(before[k]) * static_cast<double>(before[k]);
      for (size_t i = 0; i < kHyperDots; ++i) m[i] += static_cast<double>(w.fn[i * before.size() + k]) * static_cast<double>(before[k]);
    }
    const auto term = [&](size_t i, int scale) { return m[i] / std::sqrt(squares / static_cast<double>(before.size())) * static_cast<double>(w.scale[scale]) + static_cast<double>(w.base[i]); };
    const double eps = static_cast<double>(params.hc_eps);
    for (size_t i = 0; i < 4; ++i) post[i] = 2 / (1 + std::exp(-term(4 + i, 1)));
    for (size_t i = 0; i < 16; ++i) comb[i / 4][i % 4] = std::exp(term(8 + i, 2));
    for (int round = 0; round < params.sinkhorn_iters; ++round) {
      for (auto& row : comb) {
        const double sum = row[0] + row[1] + row[2] + row[3] + (round > 0 ? eps : 0);
        for (double& c : row) c = c / sum + (round > 0 ? 0 : eps);
      }
      for (size_t k = 0; k < 4; ++k) {
        const double sum = comb[0][k] + comb[1][k] + comb[2][k] + comb[3][k] + eps;
        for (auto& row : comb) row[k] /= sum;
      }
    }
  }
};

// The numbers with which rows 10, 17, 27 and 28 of the run of 33 tokens have left the golden, with one order of sums or another: computed in
// double from the golden's own numbers they are less than the last place of an f32 number from a tie.
TEST(V41, WhatFallsTheOtherWayIsNearATie) {
  const GoldenFile golden(kTiny + "/layers33.safetensors");
  EXPECT_LT(places_from_tie(Streams(golden, 2, 27).stream(0, 2)), 0.25);
  EXPECT_LT(places_from_tie(Streams(golden, 3, 10).stream(1, 88)), 0.25);
  EXPECT_LT(places_from_tie(Streams(golden, 4, 17).normed(72)), 0.6);
  EXPECT_LT(places_from_tie(Streams(golden, 0, 28).normed(102)), 0.9);
  EXPECT_GT(places_from_tie(Streams(golden, 2, 27).stream(1, 2)), 1e4);  // as most are
}

// The streams between the sublayers, in a run of its own: hyper-connections and Engram.
TEST(V41, StreamsOfEveryLayer) {
  const GoldenFile golden(kTiny + "/layers33.safetensors");
  const auto model = tiny_model();
  Recorder recorder;
  model->observe(&recorder);
  Runner runner(*model);
  runner.run(tokens_of(golden, "tokens"), 0, 33);
  for (int layer = 0; layer < 8; ++layer)
    for (const char* name : {"X", "pre", "attn_in", "ffn_in"}) {
      const std::string key = Recorder::key(name, layer);
      EXPECT_LT(relative(recorder.floats_[key], golden.floats(key)), layer < 6 ? 1e-3 : 4e-3) << key;
    }
  for (const char* key : {"X_engram.1", "X_engram.3"}) EXPECT_LT(relative(recorder.floats_[key], golden.floats(key)), 2e-4) << key;
}

// A prompt in pieces, token by token at the end: the rows are those of one step, bit for bit.
TEST(V41, AnyChunkingGivesTheSameBits) {
  const GoldenFile golden(kTiny + "/prefill.safetensors");
  const auto tokens = tokens_of(golden, "tokens200");
  const auto model = tiny_model();
  Runner whole(*model);
  const auto expected = whole.run(tokens, 0, 200);
  for (const int chunk : {1, 2, 3, 7, 8, 20, 64, 127, 128}) {
    Runner runner(*model, chunk == 20 ? 2 : chunk == 64 ? 3 : 1);
    std::vector<float> logits;
    for (int start = 0; start < 200; start += chunk) {
      const auto part = runner.run(tokens, start, std::min(chunk, 200 - start));
      logits.insert(logits.end(), part.begin(), part.end());
    }
    EXPECT_EQ(max_difference(logits, expected), 0) << chunk;
  }
}

// Fewer rows than threads: they share heads, index keys and products of a row.
TEST(V41, ThreadsThatShareARowGiveTheSameBits) {
  const GoldenFile golden(kTiny + "/prefill.safetensors");
  const auto tokens = tokens_of(golden, "tokens");
  const auto model = tiny_model();
  Runner alone(*model);
  alone.run(tokens, 0, 20);
  const auto expected = alone.run(tokens, 20, 6);
  for (const auto& [threads, chunk] : {std::pair(2, 1), {3, 1}, {3, 2}}) {
    Runner runner(*model, threads);
    runner.run(tokens, 0, 20);
    std::vector<float> logits;
    for (int start = 20; start < 26; start += chunk) {
      const auto part = runner.run(tokens, start, chunk);
      logits.insert(logits.end(), part.begin(), part.end());
    }
    EXPECT_EQ(max_difference(logits, expected), 0) << threads << " threads, " << chunk << " rows";
  }
}

TEST(V41, GreedyDecodeFollowsTheOneShotPrefills) {
  const GoldenFile golden(kTiny + "/decode.safetensors"), prefill(kTiny + "/prefill.safetensors");
  const auto model = tiny_model();
  for (const int prompt : {17, 64}) {
    const std::string name = std::to_string(prompt);
    auto tokens = tokens_of(prefill, "tokens");
    tokens.resize(static_cast<size_t>(prompt));
    const auto continuation = tokens_of(golden, name + ".tokens");
    const auto gap = golden.floats(name + ".gap");
    const double max_abs = tolerance("decode", name + ".logits").max_abs;
    Runner runner(*model);
    std::vector<float> all, logits = runner.run(tokens, 0, prompt, prompt - 1);
    for (size_t step = 0; step < 32; ++step) {
      all.insert(all.end(), logits.begin(), logits.end());
      const auto best = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      if (gap[step] > 2 * max_abs) {
        EXPECT_EQ(best, continuation[step]) << name << " step " << step;
      }
      tokens.push_back(continuation[step]);
      logits = runner.run(tokens, prompt + static_cast<int32_t>(step), 1);
    }
    expect_within(all, "decode", name + ".logits");
    // The official code's decode token by token has other ties than its prefills, ours at more than half the steps.
    if (falls_as_measured(default_isa())) {
      EXPECT_LE(median_difference(all, golden.floats(name + ".incremental_own"), 320), 1e-3f) << name;
    }
  }
}

// Threads that reach the narrowing at different times agree on whether there is one: a thread that asked late once left the step alone.
TEST(V41, NarrowingKeepsThreadsTogether) {
  const GoldenFile golden(kTiny + "/prefill.safetensors");
  const std::vector<TokenId> tokens = tokens_of(golden, "tokens");
  const auto model = tiny_model();
  Runner runner(*model, 3);
  std::vector<float> expected;
  for (int round = 0; round < 200; ++round) {
    runner.forget_state();
    const auto logits = runner.run(tokens, 0, 33, 32, {.window_start = 0, .global_start = 0, .decoder_start = 25});
    if (round == 0) expected = logits;
    ASSERT_EQ(logits, expected) << round;
  }
}

// Taking back any number of drafted rows, at every phase of the pairs: what follows is as if they had never been.
TEST(V41, RowsCanBeTakenBack) {
  const GoldenFile golden(kTiny + "/prefill.safetensors");
  const auto tokens = tokens_of(golden, "tokens");
  const auto model = tiny_model();
  for (const int kept : {1, 2, 7, 8, 9, 20, 21, 22, 23}) {
    Runner plain(*model);
    plain.run(tokens, 0, kept);
    std::vector<float> expected = plain.run(tokens, kept, 1);
    for (int drafted = 1; drafted <= V41Layout(model->config()).slack(); ++drafted) {
      Runner runner(*model);
      runner.run(tokens, 0, kept);
      auto wrong = tokens;
      for (size_t i = static_cast<size_t>(kept); i < wrong.size(); ++i) wrong[i] = (wrong[i] + 11) % 300;
      runner.run(wrong, kept, drafted);
      EXPECT_EQ(max_difference(runner.run(tokens, kept, 1), expected), 0) << kept << " and " << drafted;
      const auto next = runner.run(tokens, kept + 1, 12);
      Runner again(*model);
      again.run(tokens, 0, kept + 1);
      EXPECT_EQ(max_difference(next, again.run(tokens, kept + 1, 12)), 0) << kept << " and " << drafted;
    }
  }
}

TEST(V41, SwigluLimitBites) {
  const GoldenFile golden(kTiny + "/clamp.safetensors"), prefill(kTiny + "/prefill.safetensors");
  const auto model = tiny_model(0.5f);
  Runner runner(*model);
  const auto logits = runner.run(tokens_of(prefill, "tokens"), 0, 64);
  const auto expected = golden.floats("logits.64");
  EXPECT_LT(median_difference(logits, expected, 320), 1e-3f);
}

}  // namespace
}  // namespace deepinfer::model
