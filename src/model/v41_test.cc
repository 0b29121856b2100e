// The V4.1 forward step against what the official code computes from the same tiny checkpoint (tests/golden/v41-tiny/README.md says how
// much each comparison catches).
#include "model/v41.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>

#include "golden_safetensors.h"
#include "model/safetensors.h"
#include "model/v41_state.h"
#include "read_file.h"

namespace deepinfer::model {
namespace {

const std::string kTiny = DI_SOURCE_DIR "/tests/golden/v41-tiny";

std::vector<int32_t> token_map() {
  simdjson::dom::parser parser;
  std::vector<int32_t> map;
  const simdjson::dom::array ids = parser.load(kTiny + "/engram_token_map.json").get_array().value();
  for (const auto id : ids) map.push_back(static_cast<int32_t>(id.get_int64().value()));
  return map;
}

std::unique_ptr<V41> tiny_model(float swiglu_limit = 10.0f) {
  auto checkpoint = Safetensors::open(kTiny).value();
  V41Config config = v41_config_from_json(read_file(kTiny + "/config.json"), "config.json").value();
  config.swiglu_limit = swiglu_limit;
  auto weights = bind_v41(*checkpoint, config).value();
  auto engram = EngramHash::create(config, token_map()).value();
  return V41::create(std::move(config), std::move(weights), std::move(engram), std::move(checkpoint));
}

struct Cut {
  int32_t window_start = 0, global_start = 0, decoder_start = 0;
};

// A model with one sequence that is fed piece by piece.
class Runner {
 public:
  explicit Runner(V41& model, int threads = 1) : model_(model), workers_(Workers::create(threads, false)) {
    const KvLayout& layout = model.kv_layout();
    model.reserve({.max_rows = 256, .max_sequences = 4, .max_logit_rows = 256, .max_context = 512}, *workers_);
    arena_.resize(static_cast<size_t>(8 * layout.block_bytes));
    state_.resize(static_cast<size_t>(layout.state_bytes + 64));
    blocks_ = {5, 0, 3, 6};  // anywhere in the arena
  }

  // Runs tokens[start, start + count); returns the logits of rows from `first_logits` on.
  std::vector<float> run(const std::vector<TokenId>& tokens, int32_t start, int32_t count, int32_t first_logits = 0, Cut cut = {}) {
    const SequenceRows rows{.first_row = 0, .num_rows = count, .start = start, .block_table = blocks_, .state = aligned_state(),
                            .previous = std::span(tokens).first(static_cast<size_t>(start)), .window_start = cut.window_start,
                            .global_start = cut.global_start, .decoder_start = cut.decoder_start};
    std::vector<int32_t> wanted;
    for (int32_t i = std::max(0, first_logits - start); i < count; ++i) wanted.push_back(i);
    std::vector<float> logits(wanted.size() * static_cast<size_t>(model_.info().vocab_size));
    model_.forward({.tokens = std::span(tokens).subspan(static_cast<size_t>(start), static_cast<size_t>(count)), .sequences = {&rows, 1}, .logit_rows = wanted},
                   arena_.data(), logits.data(), *workers_);
    return logits;
  }

  void forget_state() { std::fill(state_.begin(), state_.end(), std::byte{0xff}); }
  std::byte* block(int i) { return arena_.data() + blocks_[static_cast<size_t>(i)] * model_.kv_layout().block_bytes; }
  std::byte* aligned_state() {
    return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(state_.data()) + 63) / 64 * 64);
  }

 private:
  V41& model_;
  std::unique_ptr<Workers> workers_;
  std::vector<std::byte> arena_, state_;
  std::vector<BlockId> blocks_;
};

std::vector<TokenId> tokens_of(const GoldenFile& file, std::string_view name) {
  const auto ids = file.integers(name);
  return {ids.begin(), ids.end()};
}

float max_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) worst = std::max(worst, std::fabs(a[i] - b[i]));
  return worst;
}

// RMS of the difference over RMS of the golden.
double relative(std::span<const float> a, std::span<const float> golden) {
  EXPECT_EQ(a.size(), golden.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    difference += (double{a[i]} - golden[i]) * (double{a[i]} - golden[i]);
    size += double{golden[i]} * golden[i];
  }
  return std::sqrt(difference / size);
}

// The median over rows of the largest difference in a row.
float median_difference(std::span<const float> a, std::span<const float> b, size_t width) {
  std::vector<float> worst;
  for (size_t r = 0; r + width <= a.size(); r += width) worst.push_back(max_difference(a.subspan(r, width), b.subspan(r, width)));
  std::nth_element(worst.begin(), worst.begin() + static_cast<std::ptrdiff_t>(worst.size() / 2), worst.end());
  return worst[worst.size() / 2];
}

// What the manifest says that an engine with the same rounding points may show for an array.
struct Tolerance {
  double max_abs, rel;
};
Tolerance tolerance(const std::string& file, const std::string& array) {
  static simdjson::dom::parser parser;
  static const simdjson::dom::element manifest = parser.load(kTiny + "/manifest.json").value();
  const auto same = manifest[file + ".safetensors"][array]["tolerance"]["same_rounding"];
  return {same["max_abs"].get_double().value(), same["rel"].get_double().value()};
}

// Whole networks. The manifest's tolerances are twice what a few variants of the official code showed; another order of f32 sums flips
// other bf16 bits, each of which moves its position and those that look at it by some hundredths, rarely by half a unit. So `rel` may
// reach that of one unlucky selection, and the median over rows, which the faults listed in the golden's README move by .16 and more,
// stays far below them. What is wrong in one operation shows in EveryOperationOnGoldenInputs.
void expect_within(std::span<const float> got, const std::string& file, const std::string& array) {
  static std::map<std::string, std::unique_ptr<GoldenFile>> files;
  auto& golden = files[file];
  if (!golden) golden = std::make_unique<GoldenFile>(kTiny + "/" + file + ".safetensors");
  const auto expected = golden->floats(array);
  EXPECT_LE(relative(got, expected), std::max(tolerance(file, array).rel, 0.025)) << file << " " << array;
  EXPECT_LE(median_difference(got, expected, 320), expected.size() < 200 * 320 ? 0.08f : 0.2f) << file << " " << array;
}

TEST(V41, LogitsOfEveryLength) {
  const GoldenFile golden(kTiny + "/prefill.safetensors");
  const auto model = tiny_model();
  for (const int length : {1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64, 200}) {
    const auto tokens = tokens_of(golden, length == 200 ? "tokens200" : "tokens");
    Runner runner(*model);
    const auto logits = runner.run(tokens, 0, length);
    const std::string array = "logits." + std::to_string(length);
    expect_within(logits, "prefill", array);
    // At length 33 bf16 flips in rows 10, 17 and 27, which the golden's own noise has too, reach two thirds of the rows.
    EXPECT_LT(median_difference(logits, golden.floats(array), 320), length == 33 ? 0.04f : length <= 64 ? 1e-3f : 0.2f) << length;
  }
}

class Recorder : public V41Observer {
 public:
  void floats(std::string_view name, int32_t layer, int64_t rows, int64_t width, float* data) override {
    const std::string at = key(name, layer);
    floats_[at].assign(data, data + rows * width);
    if (feed_ != nullptr && (name == "attn_in" || name == "ffn_in")) std::ranges::copy(feed_->floats(at), data);
  }
  void integers(std::string_view name, int32_t layer, int64_t rows, int64_t width, const int32_t* data) override {
    integers_[key(name, layer)].assign(data, data + rows * width);
  }
  void feed(const GoldenFile* golden) { feed_ = golden; }  // the golden inputs replace those of the sublayers
  static std::string key(std::string_view name, int32_t layer) { return std::string(name) + "." + std::to_string(layer); }
  std::map<std::string, std::vector<float>> floats_;
  std::map<std::string, std::vector<int64_t>> integers_;

 private:
  const GoldenFile* feed_ = nullptr;
};

// Share of equal bytes.
double equal_share(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  EXPECT_EQ(a.size(), b.size());
  size_t equal = 0;
  for (size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i];
  return static_cast<double>(equal) / static_cast<double>(a.size());
}

// The sharp test: every sublayer on the golden's own input, so that a fault cannot hide in the noise of those before it.
TEST(V41, EveryOperationOnGoldenInputs) {
  const GoldenFile golden(kTiny + "/layers33.safetensors");
  const auto model = tiny_model();
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

// Bounded replay after a hit of H tokens: the blocks hold what ends below H, the windows are rebuilt from H - 8 on.
TEST(V41, EncoderReplay) {
  const GoldenFile golden(kTiny + "/replay.safetensors");
  const auto tokens = tokens_of(golden, "tokens");
  const auto model = tiny_model();
  for (const int hit : {8, 16, 31, 32}) {
    Runner runner(*model);
    runner.run(tokens, 0, 64);
    const std::vector<std::byte> before(runner.block(0), runner.block(0) + model->kv_layout().block_bytes);
    runner.forget_state();
    const int start = std::max(0, hit - 8);
    const auto logits = runner.run(tokens, start, 64 - start, hit, {.window_start = start, .global_start = hit, .decoder_start = start});
    expect_within(logits, "replay", "enc." + std::to_string(hit) + ".logits");
    const V41Layout layout(model->config());
    for (const auto& [source, ratio] : {std::pair(0, 2), {1, 2}, {2, 1}})
      for (int32_t row = 0; row < hit / ratio; ++row) {
        const auto* now = layout.main_row(runner.block(0), source, row).codes;
        const auto offset = now - reinterpret_cast<const uint8_t*>(runner.block(0));
        EXPECT_EQ(std::memcmp(now, before.data() + offset, 32), 0) << hit << " " << source << " " << row;
      }
  }
}

// Narrowing: only the last rows of a prompt enter the decoder layers, whose windows begin with them.
TEST(V41, DecoderNarrowing) {
  const GoldenFile golden(kTiny + "/replay.safetensors");
  const auto tokens = tokens_of(golden, "tokens");
  const auto model = tiny_model();
  for (const int prompt : {8, 9, 16, 33, 64}) {
    const int kept = std::max(0, prompt - 8);
    Runner runner(*model);
    const auto logits = runner.run(tokens, 0, prompt, kept, {.decoder_start = kept});
    expect_within(logits, "replay", "dec." + std::to_string(prompt) + ".logits");
    for (const int chunk : {1, 5, 13}) {  // the same in pieces, whatever falls on either side of the cut
      Runner pieces(*model);
      std::vector<float> parts;
      for (int start = 0; start < prompt; start += chunk) {
        const auto part = pieces.run(tokens, start, std::min(chunk, prompt - start), kept, {.decoder_start = kept});
        parts.insert(parts.end(), part.begin(), part.end());
      }
      EXPECT_EQ(max_difference(parts, logits), 0) << prompt << " in " << chunk;
    }
  }
}

TEST(V41, ReplayAndNarrowingThenADecodeStep) {
  const GoldenFile golden(kTiny + "/replay.safetensors");
  const auto model = tiny_model();
  for (const int hit : {8, 16, 31, 32}) {
    auto tokens = tokens_of(golden, "tokens");
    Runner runner(*model);
    runner.run(tokens, 0, 64);
    runner.forget_state();
    const int start = std::max(0, hit - 8);
    const std::string name = "encdec." + std::to_string(hit);
    const auto logits = runner.run(tokens, start, 64 - start, 56, {.window_start = start, .global_start = hit, .decoder_start = 56});
    expect_within(logits, "replay", name + ".logits");
    tokens.push_back(static_cast<TokenId>(golden.integers(name + ".next")[0]));
    const auto next = runner.run(tokens, 64, 1, 64, {.window_start = start, .global_start = hit, .decoder_start = 56});
    EXPECT_LE(relative(next, golden.floats(name + ".next_logits")), 0.03) << name;
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
