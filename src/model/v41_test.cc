// The V4.1 forward step against what the official code computes from the same tiny checkpoint (tests/golden/v41-tiny/README.md says how
// much each comparison catches).
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
    const std::string array = "logits." + std::to_string(length);
    expect_within(logits, "prefill", array);
    EXPECT_LT(median_difference(logits, golden.floats(array), 320), length <= 64 ? 1e-3f : 0.2f) << length;
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

// The sharp test: every sublayer on the golden's own input, so that a fault cannot hide in the noise of those before it.
class V41Isa : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Isas, V41Isa, testing::ValuesIn(available_isas().begin(), available_isas().end()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

TEST_P(V41Isa, EveryOperationOnGoldenInputs) {
  const GoldenFile golden(kTiny + "/layers33.safetensors");
  const auto model = tiny_model(10.0f, GetParam());
  Recorder recorder;
  recorder.feed(&golden);
  model->observe(&recorder);
  Runner runner(*model);
  runner.run(tokens_of(golden, "tokens"), 0, 33);
  for (int layer = 0; layer < 8; ++layer) {
    for (const char* name : {"attn_out", "ffn_out", "window_rows", "router_w"}) {
      const std::string key = Recorder::key(name, layer);
      EXPECT_LE(relative(recorder.floats_[key], golden.floats(key)), 0.01) << key;
    }
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
    EXPECT_GE(equal_share(codes, golden.bytes(Recorder::key("main_codes", layer))), 0.99);
    EXPECT_GE(equal_share(scales, golden.bytes(Recorder::key("main_scales", layer))), 0.99);
    EXPECT_GE(equal_share(key_codes, golden.bytes(Recorder::key("index_key_codes", layer))), 0.99);
    EXPECT_GE(equal_share(key_scales, golden.bytes(Recorder::key("index_key_scales", layer))), 0.99);
  }
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
