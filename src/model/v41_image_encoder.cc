#include "model/v41_image_encoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "kernels/block_linear.h"
#include "kernels/full_attention.h"
#include "kernels/v41_rows.h"
#include "model/v41_math.h"

namespace deepinfer::model {
namespace {

constexpr float kNormEps = 1e-6f;    // the tower's own, not the language model's
constexpr int64_t kRowsAtOnce = 64;  // of one thread: their intermediate numbers stay in its L2 cache

// out [rows, w.rows] (row stride ld_out) = bf16(w x + bias). scratch: floats for [rows, w.rows].
struct Projection {
  const bf16* x;
  int64_t ldx, rows;
  const Bf16Matrix& w;
  const bf16* bias;  // [w.rows] or null
  bf16* out;
  int64_t ld_out;
};
void project(const Projection& p, std::vector<float>& scratch, Isa isa) {
  scratch.resize(static_cast<size_t>(p.rows * p.w.rows));
  linear(Bf16Rows{p.x, p.ldx, p.rows}, p.w, 0, p.w.rows, {scratch.data(), p.w.rows, false}, isa);
  for (int64_t row = 0; row < p.rows; ++row) {
    const float* y = scratch.data() + row * p.w.rows;
    for (int64_t i = 0; i < p.w.rows; ++i) p.out[row * p.ld_out + i] = to_bf16(p.bias != nullptr ? y[i] + to_f32(p.bias[i]) : y[i]);
  }
}

float gelu(float x) { return 0.5f * x * (1 + std::erf(x * 0.70710678f)); }

// Working memory of one thread.
struct RowScratch {
  std::vector<float> floats, row;
  std::vector<bf16> normed, wide, gated;
};

// What is done to a picture, in this order; from kEnter to kLeave for every block of the tower.
enum class EncodingPart : uint8_t { kPatches, kEnter, kKeys, kAttend, kLeave, kNorm, kAlign, kDone };

// Each part is a number of equal units (chunks of rows, tiles of the attention), of which a piece takes some. All threads share the units of a piece.
class PictureEncoding final : public ImageEncoding {
 public:
  // begin: kPatches with patches, or kAlign with the tower's output.
  PictureEncoding(const V41Config& config, const V41VisionWeights& weights, const image::PatchPlan& plan, Isa isa, Workers& workers, EncodingPart begin, std::vector<bf16> input)
      : c_(*config.vision),
        w_(weights),
        plan_(plan),
        isa_(isa),
        workers_(workers),
        d_(c_.hidden_size),
        hidden_(config.hidden_size),
        head_dim_(c_.hidden_size / c_.num_attention_heads),
        n_(int64_t{plan.patch_rows} * plan.patch_columns),
        num_aligned_(int64_t{plan.token_rows} * plan.token_columns),
        part_(begin),
        qkv_(static_cast<size_t>(n_ * 3 * d_)),
        attended_(static_cast<size_t>(n_ * d_)),
        aligned_(static_cast<size_t>(num_aligned_ * hidden_)),
        attention_(n_, c_.num_attention_heads, head_dim_, workers.size()),
        scratch_(static_cast<size_t>(workers.size())) {
    CHECK(static_cast<int64_t>(input.size()) == n_ * (begin == EncodingPart::kAlign ? d_ : w_.patch.cols));
    (begin == EncodingPart::kAlign ? x_ : patches_) = std::move(input);
    x_.resize(static_cast<size_t>(n_ * d_));
    const int32_t rotated = head_dim_ / 2;
    for (int32_t i = 0; i < head_dim_ / 4; ++i) {
      frequencies_.push_back(std::pow(static_cast<float>(c_.rope_theta), -2.0f * static_cast<float>(i) / static_cast<float>(rotated)));
    }
  }

  bool advance(double num_products) override {
    while (part_ != EncodingPart::kDone) {
      const int64_t affordable = static_cast<int64_t>(num_products / unit_products());
      const int64_t count = std::min(num_units() - next_unit_, std::max<int64_t>(affordable, workers_.size()));
      workers_.run([&](Team& team) { run(next_unit_, next_unit_ + count, team); });
      num_products -= static_cast<double>(count) * unit_products();
      next_unit_ += count;
      if (next_unit_ == num_units()) enter_next_part();
      if (num_products <= 0) break;
    }
    return part_ == EncodingPart::kDone;
  }

  std::vector<bf16> take_rows() override {
    std::vector<bf16> rows;
    rows.reserve(static_cast<size_t>(plan_.num_tokens() * hidden_));
    const auto append = [&](const bf16* row, int64_t count) { rows.insert(rows.end(), row, row + count * hidden_); };
    append(w_.image_start, 1);
    for (int64_t line = 0; line < plan_.token_rows; ++line) {
      append(aligned_.data() + line * plan_.token_columns * hidden_, plan_.token_columns);
      append(w_.image_newline, 1);
    }
    append(w_.image_end, 1);
    return rows;
  }

  EncodingPart part() const { return part_; }
  std::vector<bf16> take_tower() { return std::move(x_); }
  std::vector<bf16> take_aligned() { return std::move(aligned_); }

 private:
  int64_t num_units() {
    switch (part_) {
      case EncodingPart::kKeys: return 1;  // moves numbers only
      case EncodingPart::kAttend: return full_attention_tiles(attention_params());
      case EncodingPart::kAlign: return (num_aligned_ + kRowsAtOnce - 1) / kRowsAtOnce;
      default: return (n_ + kRowsAtOnce - 1) / kRowsAtOnce;
    }
  }
  double unit_products() {
    const auto of_rows = [](int64_t products) { return static_cast<double>(kRowsAtOnce * products); };
    switch (part_) {
      case EncodingPart::kPatches: return of_rows(d_ * w_.patch.cols);
      case EncodingPart::kEnter: return of_rows(d_ * 3 * d_);
      case EncodingPart::kAttend: return 2 * static_cast<double>(n_ * n_ * d_) / static_cast<double>(num_units());
      case EncodingPart::kLeave: return of_rows(d_ * (d_ + 3 * int64_t{c_.intermediate_size}));
      case EncodingPart::kAlign: return of_rows(hidden_ * (w_.aligner_w1.cols + hidden_));
      default: return static_cast<double>(n_ * d_) / static_cast<double>(num_units());
    }
  }
  void enter_next_part() {
    next_unit_ = 0;
    if (part_ == EncodingPart::kLeave && ++block_ < w_.blocks.size()) part_ = EncodingPart::kEnter;
    else part_ = static_cast<EncodingPart>(static_cast<uint8_t>(part_) + 1);
  }

  void run(int64_t first_unit, int64_t end_unit, Team& team) {
    const auto [begin, end] = team.range(end_unit - first_unit);
    RowScratch& s = scratch_[static_cast<size_t>(team.index())];
    const auto each_chunk = [&, from = first_unit + begin, to = first_unit + end](int64_t num_rows, auto f) {
      for (int64_t chunk = from; chunk < to; ++chunk) f(chunk * kRowsAtOnce, std::min(kRowsAtOnce, num_rows - chunk * kRowsAtOnce));
    };
    switch (part_) {
      case EncodingPart::kPatches: return each_chunk(n_, [&](int64_t row, int64_t rows) { embed(row, rows, s); });
      case EncodingPart::kEnter: return each_chunk(n_, [&](int64_t row, int64_t rows) { enter_attention(w_.blocks[block_], row, rows, s); });
      case EncodingPart::kKeys: return lay_out_keys(attention_params(), attention_, team);
      case EncodingPart::kAttend: return full_attention(attention_params(), attention_, first_unit, end_unit, isa_, team);
      case EncodingPart::kLeave: return each_chunk(n_, [&](int64_t row, int64_t rows) { leave_attention(w_.blocks[block_], row, rows, s); });
      case EncodingPart::kNorm: return each_chunk(n_, [&](int64_t row, int64_t rows) { norm(w_.norm, row, rows, x(row), s); });
      case EncodingPart::kAlign: return each_chunk(num_aligned_, [&](int64_t row, int64_t rows) { align(row, rows, s); });
      case EncodingPart::kDone: return;
    }
  }

  FullAttentionParams attention_params() {
    return {.queries = qkv_.data(), .keys = qkv_.data() + d_, .values = qkv_.data() + 2 * d_, .ld = 3 * d_, .num_rows = n_, .num_heads = c_.num_attention_heads,
            .head_dim = head_dim_, .scale = 1 / std::sqrt(static_cast<float>(head_dim_)), .out = attended_.data(), .ld_out = d_};
  }
  bf16* x(int64_t row) { return x_.data() + row * d_; }

  void embed(int64_t row, int64_t rows, RowScratch& s) {
    project({.x = patches_.data() + row * w_.patch.cols, .ldx = w_.patch.cols, .rows = rows, .w = w_.patch, .bias = w_.patch_bias, .out = x(row), .ld_out = d_}, s.floats, isa_);
  }

  void norm(const bf16* weight, int64_t row, int64_t rows, bf16* out, RowScratch& s) {
    s.row.resize(static_cast<size_t>(d_));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < d_; ++i) s.row[static_cast<size_t>(i)] = to_f32(x(row + r)[i]);
      v41_norm(s.row.data(), weight, d_, kNormEps, s.row.data(), isa_);
      for (int64_t i = 0; i < d_; ++i) out[r * d_ + i] = to_bf16(s.row[static_cast<size_t>(i)]);
    }
  }

  void enter_attention(const V41VisionBlock& block, int64_t row, int64_t rows, RowScratch& s) {
    s.normed.resize(static_cast<size_t>(rows * d_));
    norm(block.norm1, row, rows, s.normed.data(), s);
    bf16* qkv = qkv_.data() + row * 3 * d_;
    project({.x = s.normed.data(), .ldx = d_, .rows = rows, .w = block.wqkv, .bias = block.wqkv_bias, .out = qkv, .ld_out = 3 * d_}, s.floats, isa_);
    for (int64_t r = 0; r < rows; ++r) rotate(row + r, qkv + r * 3 * d_);
  }

  // Queries and keys of all heads: the first half of the angles by the patch's row, the second by its column; pairs (i, i + head_dim / 2).
  void rotate(int64_t patch, bf16* heads) const {
    const int64_t half = head_dim_ / 2, quarter = head_dim_ / 4;
    for (int64_t i = 0; i < half; ++i) {
      const int64_t place = i < quarter ? patch / plan_.patch_columns : patch % plan_.patch_columns;
      const float angle = static_cast<float>(place) * frequencies_[static_cast<size_t>(i % quarter)];
      const float c = std::cos(angle), sine = std::sin(angle);
      for (int64_t head = 0; head < int64_t{2} * c_.num_attention_heads; ++head) {
        bf16& low = heads[head * head_dim_ + i];
        bf16& high = heads[head * head_dim_ + i + half];
        const float a = to_f32(low), b = to_f32(high);
        low = to_bf16(a * c - b * sine);
        high = to_bf16(b * c + a * sine);
      }
    }
  }

  void add(int64_t row, int64_t rows, const bf16* delta) {
    for (int64_t i = 0; i < rows * d_; ++i) x(row)[i] = to_bf16(to_f32(x(row)[i]) + to_f32(delta[i]));
  }

  void leave_attention(const V41VisionBlock& block, int64_t row, int64_t rows, RowScratch& s) {
    const int64_t inter = c_.intermediate_size;
    s.normed.resize(static_cast<size_t>(rows * d_));
    project({.x = attended_.data() + row * d_, .ldx = d_, .rows = rows, .w = block.wo, .bias = block.wo_bias, .out = s.normed.data(), .ld_out = d_}, s.floats, isa_);
    add(row, rows, s.normed.data());
    norm(block.norm2, row, rows, s.normed.data(), s);
    s.wide.resize(static_cast<size_t>(rows * 2 * inter));
    s.gated.resize(static_cast<size_t>(rows * inter));
    project({.x = s.normed.data(), .ldx = d_, .rows = rows, .w = block.w1, .bias = nullptr, .out = s.wide.data(), .ld_out = 2 * inter}, s.floats, isa_);
    for (int64_t r = 0; r < rows; ++r) {
      const bf16* gate = s.wide.data() + r * 2 * inter;
      for (int64_t i = 0; i < inter; ++i) {
        const float g = to_f32(gate[i]);
        s.gated[static_cast<size_t>(r * inter + i)] = to_bf16(round_bf16(g / (1 + std::exp(-g))) * to_f32(gate[inter + i]));
      }
    }
    project({.x = s.gated.data(), .ldx = inter, .rows = rows, .w = block.w2, .bias = nullptr, .out = s.normed.data(), .ld_out = d_}, s.floats, isa_);
    add(row, rows, s.normed.data());
  }

  // Joins ratio x ratio patches, channel by channel, to one row each.
  void align(int64_t first, int64_t rows, RowScratch& s) {
    const int64_t ratio = c_.downsample_ratio, cols = w_.aligner_w1.cols;
    s.wide.resize(static_cast<size_t>(rows * cols));
    s.gated.resize(static_cast<size_t>(rows * hidden_));
    bf16* joined = s.wide.data();
    for (int64_t row = first; row < first + rows; ++row) {
      const int64_t top = row / plan_.token_columns * ratio, left = row % plan_.token_columns * ratio;
      for (int64_t channel = 0; channel < d_; ++channel) {
        for (int64_t y = top; y < top + ratio; ++y) {
          for (int64_t column = left; column < left + ratio; ++column) {  // zeros past the last row and column
            const bool inside = y < plan_.patch_rows && column < plan_.patch_columns;
            *joined++ = inside ? x(y * plan_.patch_columns + column)[channel] : bf16{0};
          }
        }
      }
    }
    project({.x = s.wide.data(), .ldx = cols, .rows = rows, .w = w_.aligner_w1, .bias = w_.aligner_w1_bias, .out = s.gated.data(), .ld_out = hidden_}, s.floats, isa_);
    for (bf16& v : s.gated) v = to_bf16(gelu(to_f32(v)));
    project({.x = s.gated.data(), .ldx = hidden_, .rows = rows, .w = w_.aligner_w2, .bias = w_.aligner_w2_bias, .out = aligned_.data() + first * hidden_, .ld_out = hidden_},
            s.floats, isa_);
  }

  const V41Vision& c_;
  const V41VisionWeights& w_;
  const image::PatchPlan plan_;
  const Isa isa_;
  Workers& workers_;
  const int64_t d_, hidden_;
  const int32_t head_dim_;
  const int64_t n_, num_aligned_;  // patches, and what the aligner makes of them
  EncodingPart part_;
  size_t block_ = 0;               // of the tower
  int64_t next_unit_ = 0;
  std::vector<float> frequencies_;  // [head_dim / 4], of rows and of columns alike
  std::vector<bf16> patches_;
  std::vector<bf16> x_;             // [patches, d]
  std::vector<bf16> qkv_;           // [patches, 3 d]
  std::vector<bf16> attended_;      // [patches, d]
  std::vector<bf16> aligned_;       // [num_aligned, hidden_size of the language model]
  FullAttentionScratch attention_;
  std::vector<RowScratch> scratch_;  // one a thread
};

image::PatchOptions options_of(const V41Config& config) {
  CHECK(config.vision.has_value());
  return patch_options(*config.vision);
}

}  // namespace

image::PatchOptions patch_options(const V41Vision& v) {
  return {.patch_size = v.patch_size, .downsample_ratio = v.downsample_ratio, .max_tokens = v.max_image_tokens, .min_pixels = v.min_pixels,
          .max_wh_ratio = v.max_wh_ratio};
}

V41ImageEncoder::V41ImageEncoder(const V41Config& config, const V41Weights& weights, Isa isa)
    : config_(config), weights_(weights.vision), patch_options_(options_of(config)), isa_(isa) {}

std::unique_ptr<ImageEncoding> V41ImageEncoder::begin(std::vector<bf16> patches, const image::PatchPlan& plan, Workers& workers) const {
  return std::make_unique<PictureEncoding>(config_, weights_, plan, isa_, workers, EncodingPart::kPatches, std::move(patches));
}

std::vector<bf16> V41ImageEncoder::tower(std::vector<bf16> patches, const image::PatchPlan& plan, Workers& workers) const {
  PictureEncoding encoding(config_, weights_, plan, isa_, workers, EncodingPart::kPatches, std::move(patches));
  while (encoding.part() != EncodingPart::kAlign) encoding.advance(0);
  return encoding.take_tower();
}

std::vector<bf16> V41ImageEncoder::align(std::vector<bf16> features, const image::PatchPlan& plan, Workers& workers) const {
  PictureEncoding encoding(config_, weights_, plan, isa_, workers, EncodingPart::kAlign, std::move(features));
  while (!encoding.advance(0)) {
  }
  return encoding.take_aligned();
}

}  // namespace deepinfer::model
