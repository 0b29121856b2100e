// The tiny V4.1 checkpoint of tests/golden/v41-tiny, one sequence fed to it piece by piece, and comparisons with its golden data.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <set>
#include <simdjson.h>

#include "golden_safetensors.h"
#include "model/safetensors.h"
#include "model/v41.h"
#include "model/v41_state.h"
#include "read_file.h"

namespace deepinfer::model {

inline const std::string kTiny = DI_SOURCE_DIR "/tests/golden/v41-tiny";

inline std::unique_ptr<V41> tiny_model(float swiglu_limit = 10.0f, Isa isa = default_isa()) {
  auto checkpoint = Safetensors::open(kTiny).value();
  V41Config config = v41_config_from_json(read_file(kTiny + "/config.json"), "config.json").value();
  config.swiglu_limit = swiglu_limit;
  auto weights = bind_v41(*checkpoint, config).value();
  auto engram = EngramHash::create(config, read_engram_token_map(kTiny + "/engram_token_map.json").value()).value();
  return V41::create(std::move(config), std::move(weights), std::move(engram), std::move(checkpoint), isa);
}

struct Cut {
  int32_t window_start = 0, global_start = 0, decoder_start = 0;
};

// A model with one sequence that is fed piece by piece. Its state begins as no numbers: what is read must have been written.
class Runner {
 public:
  explicit Runner(V41& model, int threads = 1) : model_(model), workers_(Workers::create(threads, false)) {
    const KvLayout& layout = model.kv_layout();
    model.reserve({.max_rows = 256, .max_sequences = 4, .max_logit_rows = 256, .max_context = 512}, *workers_);
    arena_.resize(static_cast<size_t>(8 * layout.block_bytes));
    state_.resize(static_cast<size_t>(layout.state_bytes + 64));
    blocks_ = {5, 0, 3, 6};  // anywhere in the arena
    forget_state();
  }

  // Runs tokens[start, start + count); returns the logits of rows from `first_logits` on.
  std::vector<float> run(const std::vector<TokenId>& tokens, int32_t start, int32_t count, int32_t first_logits = 0, Cut cut = {}) {
    return try_run(tokens, start, count, first_logits, cut).value();
  }
  Result<std::vector<float>> try_run(const std::vector<TokenId>& tokens, int32_t start, int32_t count, int32_t first_logits = 0, Cut cut = {}) {
    const SequenceRows rows{.first_row = 0, .num_rows = count, .start = start, .block_table = blocks_, .state = aligned_state(),
                            .previous = std::span(tokens).first(static_cast<size_t>(start)), .window_start = cut.window_start,
                            .global_start = cut.global_start, .decoder_start = cut.decoder_start};
    std::vector<int32_t> wanted;
    for (int32_t i = std::max(0, first_logits - start); i < count; ++i) wanted.push_back(i);
    std::vector<float> logits(wanted.size() * static_cast<size_t>(model_.info().vocab_size));
    DI_TRY(model_.forward({.tokens = std::span(tokens).subspan(static_cast<size_t>(start), static_cast<size_t>(count)), .sequences = {&rows, 1}, .logit_rows = wanted},
                          arena_.data(), logits.data(), *workers_));
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

inline std::vector<TokenId> tokens_of(const GoldenFile& file, std::string_view name) {
  const auto ids = file.integers(name);
  return {ids.begin(), ids.end()};
}

inline float max_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    worst = std::isnan(difference) ? std::numeric_limits<float>::infinity() : std::max(worst, difference);
  }
  return worst;
}

// RMS of the difference over RMS of the golden.
inline double relative(std::span<const float> a, std::span<const float> golden) {
  EXPECT_EQ(a.size(), golden.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    difference += (double{a[i]} - golden[i]) * (double{a[i]} - golden[i]);
    size += double{golden[i]} * golden[i];
  }
  return std::sqrt(difference / size);
}

// The median over rows of the largest difference in a row.
inline float median_difference(std::span<const float> a, std::span<const float> b, size_t width) {
  std::vector<float> worst;
  for (size_t r = 0; r + width <= a.size(); r += width) worst.push_back(max_difference(a.subspan(r, width), b.subspan(r, width)));
  std::nth_element(worst.begin(), worst.begin() + static_cast<std::ptrdiff_t>(worst.size() / 2), worst.end());
  return worst[worst.size() / 2];
}

// What the manifest says that an engine with the same rounding points may show for an array.
struct Tolerance {
  double max_abs, rel;
};
inline Tolerance tolerance(const std::string& file, const std::string& array) {
  static simdjson::dom::parser parser;
  static const simdjson::dom::element manifest = parser.load(kTiny + "/manifest.json").value();
  const auto same = manifest[file + ".safetensors"][array]["tolerance"]["same_rounding"];
  return {same["max_abs"].get_double().value(), same["rel"].get_double().value()};
}

// Whole networks. A step rounds some ten thousand numbers a position, a few of which lie so near a tie that the last bit of an f32 sum decides; one that
// falls the other way moves its position and those that look at it by some hundredths. With the sums of hyper-connections in double that
// reaches half the positions of the arrays below, between the official code's own runs too; of all others the median is what the golden's README
// says. What decides there, and that nothing else differs, is in OfficialOrder; what is wrong in one operation shows in EveryOperationOnGoldenInputs.
inline void expect_within(std::span<const float> got, const std::string& file, const std::string& array) {
  static std::map<std::string, std::unique_ptr<GoldenFile>> files;
  static const std::set<std::string> tied = {"17.logits", "64.logits", "enc.16.logits", "encdec.16.logits"};
  auto& golden = files[file];
  if (!golden) golden = std::make_unique<GoldenFile>(kTiny + "/" + file + ".safetensors");
  const auto expected = golden->floats(array);
  const bool is_long = expected.size() >= 200 * 320;
  EXPECT_LE(relative(got, expected), std::max(tolerance(file, array).rel, 0.0125)) << file << " " << array;
  EXPECT_LE(median_difference(got, expected, 320), is_long ? 0.2f : tied.contains(array) ? 0.08f : 1e-3f) << file << " " << array;
}

// The rows of which a number differs by more than `most`.
inline std::vector<int> rows_apart(std::span<const float> a, std::span<const float> b, size_t width, float most) {
  EXPECT_EQ(a.size(), b.size());
  std::vector<int> rows;
  for (size_t r = 0; (r + 1) * width <= std::min(a.size(), b.size()); ++r)
    if (!(max_difference(a.subspan(r * width, width), b.subspan(r * width, width)) <= most)) rows.push_back(static_cast<int>(r));
  return rows;
}

class Recorder : public V41Observer {
 public:
  void floats(std::string_view name, int32_t layer, int64_t rows, int64_t width, float* data) override {
    const std::string at = key(name, layer);
    floats_[at].assign(data, data + rows * width);
    static const std::set<std::string_view> passed_on = {"attn_in", "attn_out", "ffn_in", "ffn_out", "X_engram", "X", "pre"};
    if (feed_ != nullptr && passed_on.contains(name)) std::ranges::copy(feed_->floats(at), data);
  }
  void integers(std::string_view name, int32_t layer, int64_t rows, int64_t width, const int32_t* data) override {
    integers_[key(name, layer)].assign(data, data + rows * width);
  }
  void feed(const GoldenFile* golden) { feed_ = golden; }  // the golden's numbers replace what sublayers pass on
  static std::string key(std::string_view name, int32_t layer) { return std::string(name) + "." + std::to_string(layer); }
  std::map<std::string, std::vector<float>> floats_;
  std::map<std::string, std::vector<int64_t>> integers_;

 private:
  const GoldenFile* feed_ = nullptr;
};

}  // namespace deepinfer::model
