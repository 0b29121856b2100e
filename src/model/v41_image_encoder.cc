#include "model/v41_image_encoder.h"

#include <algorithm>
#include <cmath>

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

// Working memory of one thread.
struct RowScratch {
  std::vector<float> floats, row;
  std::vector<bf16> normed, wide, gated;
};

// One pass of the tower over a picture. Rows are cut among the threads in chunks; they meet only for the attention.
class Tower {
 public:
  Tower(const V41Vision& config, const V41VisionWeights& weights, const image::PatchPlan& plan, Isa isa, int num_threads)
      : c_(config),
        w_(weights),
        plan_(plan),
        isa_(isa),
        d_(config.hidden_size),
        head_dim_(config.hidden_size / config.num_attention_heads),
        n_(int64_t{plan.patch_rows} * plan.patch_columns),
        x_(static_cast<size_t>(n_ * d_)),
        qkv_(static_cast<size_t>(n_ * 3 * d_)),
        attended_(static_cast<size_t>(n_ * d_)),
        attention_(n_, config.num_attention_heads, head_dim_, num_threads) {
    const int32_t rotated = head_dim_ / 2;
    for (int32_t i = 0; i < head_dim_ / 4; ++i) {
      frequencies_.push_back(std::pow(static_cast<float>(c_.rope_theta), -2.0f * static_cast<float>(i) / static_cast<float>(rotated)));
    }
  }

  void run(std::span<const bf16> patches, Team& team) {
    RowScratch s;
    each_chunk(team, [&](int64_t row, int64_t rows) {
      project({.x = patches.data() + row * w_.patch.cols, .ldx = w_.patch.cols, .rows = rows, .w = w_.patch, .bias = w_.patch_bias, .out = x(row), .ld_out = d_},
              s.floats, isa_);
    });
    for (const V41VisionBlock& block : w_.blocks) {
      each_chunk(team, [&](int64_t row, int64_t rows) { enter_attention(block, row, rows, s); });
      team.barrier();
      full_attention({.queries = qkv_.data(), .keys = qkv_.data() + d_, .values = qkv_.data() + 2 * d_, .ld = 3 * d_, .num_rows = n_,
                      .num_heads = c_.num_attention_heads, .head_dim = head_dim_, .scale = 1 / std::sqrt(static_cast<float>(head_dim_)),
                      .out = attended_.data(), .ld_out = d_},
                     attention_, isa_, team);
      team.barrier();
      each_chunk(team, [&](int64_t row, int64_t rows) { leave_attention(block, row, rows, s); });
    }
    each_chunk(team, [&](int64_t row, int64_t rows) { norm(w_.norm, row, rows, x(row), s); });
  }

  std::vector<bf16> take() { return std::move(x_); }

 private:
  template <class F>
  void each_chunk(const Team& team, F f) const {
    const auto [begin, end] = team.range((n_ + kRowsAtOnce - 1) / kRowsAtOnce);
    for (int64_t chunk = begin; chunk < end; ++chunk) f(chunk * kRowsAtOnce, std::min(kRowsAtOnce, n_ - chunk * kRowsAtOnce));
  }
  bf16* x(int64_t row) { return x_.data() + row * d_; }

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

  const V41Vision& c_;
  const V41VisionWeights& w_;
  const image::PatchPlan& plan_;
  const Isa isa_;
  const int64_t d_;
  const int32_t head_dim_;
  const int64_t n_;
  std::vector<float> frequencies_;  // [head_dim / 4], of rows and of columns alike
  std::vector<bf16> x_;             // [patches, d]
  std::vector<bf16> qkv_;           // [patches, 3 d]
  std::vector<bf16> attended_;      // [patches, d]
  FullAttentionScratch attention_;
};

image::PatchOptions options_of(const V41Config& config) {
  CHECK(config.vision.has_value());
  return patch_options(*config.vision);
}

float gelu(float x) { return 0.5f * x * (1 + std::erf(x * 0.70710678f)); }

}  // namespace

image::PatchOptions patch_options(const V41Vision& v) {
  return {.patch_size = v.patch_size, .downsample_ratio = v.downsample_ratio, .max_tokens = v.max_image_tokens, .min_pixels = v.min_pixels,
          .max_wh_ratio = v.max_wh_ratio};
}

V41ImageEncoder::V41ImageEncoder(const V41Config& config, const V41Weights& weights, Isa isa)
    : config_(config), weights_(weights.vision), patch_options_(options_of(config)), isa_(isa) {}

std::vector<bf16> V41ImageEncoder::tower(std::span<const bf16> patches, const image::PatchPlan& plan, Workers& workers) const {
  CHECK(static_cast<int64_t>(patches.size()) == int64_t{plan.patch_rows} * plan.patch_columns * weights_.patch.cols);
  Tower tower(*config_.vision, weights_, plan, isa_, workers.size());
  workers.run([&](Team& team) { tower.run(patches, team); });
  return tower.take();
}

std::vector<bf16> V41ImageEncoder::align(std::span<const bf16> features, const image::PatchPlan& plan, Workers& workers) const {
  const int64_t d = config_.vision->hidden_size, ratio = config_.vision->downsample_ratio, hidden = config_.hidden_size;
  const int64_t rows = int64_t{plan.token_rows} * plan.token_columns, cols = weights_.aligner_w1.cols;
  std::vector<bf16> out(static_cast<size_t>(rows * hidden));
  workers.run([&](Team& team) {
    std::vector<float> scratch;
    std::vector<bf16> joined(static_cast<size_t>(cols)), inner(static_cast<size_t>(hidden));
    const auto [begin, end] = team.range(rows);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t top = row / plan.token_columns * ratio, left = row % plan.token_columns * ratio;
      for (int64_t channel = 0; channel < d; ++channel) {
        for (int64_t y = 0; y < ratio; ++y) {
          for (int64_t x = 0; x < ratio; ++x) {  // zeros past the last row and column
            const bool inside = top + y < plan.patch_rows && left + x < plan.patch_columns;
            const int64_t patch = (top + y) * plan.patch_columns + left + x;
            joined[static_cast<size_t>((channel * ratio + y) * ratio + x)] = inside ? features[static_cast<size_t>(patch * d + channel)] : bf16{0};
          }
        }
      }
      project({.x = joined.data(), .ldx = cols, .rows = 1, .w = weights_.aligner_w1, .bias = weights_.aligner_w1_bias, .out = inner.data(), .ld_out = hidden}, scratch, isa_);
      for (bf16& v : inner) v = to_bf16(gelu(to_f32(v)));
      project({.x = inner.data(), .ldx = hidden, .rows = 1, .w = weights_.aligner_w2, .bias = weights_.aligner_w2_bias, .out = out.data() + row * hidden, .ld_out = hidden},
              scratch, isa_);
    }
  });
  return out;
}

std::vector<bf16> V41ImageEncoder::encode(std::span<const bf16> patches, const image::PatchPlan& plan, Workers& workers) const {
  const std::vector<bf16> features = align(tower(patches, plan, workers), plan, workers);
  const int64_t hidden = config_.hidden_size;
  std::vector<bf16> rows;
  rows.reserve(static_cast<size_t>(plan.num_tokens() * hidden));
  const auto append = [&](const bf16* row, int64_t count) { rows.insert(rows.end(), row, row + count * hidden); };
  append(weights_.image_start, 1);
  for (int64_t line = 0; line < plan.token_rows; ++line) {
    append(features.data() + line * plan.token_columns * hidden, plan.token_columns);
    append(weights_.image_newline, 1);
  }
  append(weights_.image_end, 1);
  return rows;
}

}  // namespace deepinfer::model
