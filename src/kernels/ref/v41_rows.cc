// The definitions of DeepSeek-V4.1's operations on rows, in double between the model's rounding points.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/block_quantize.h"
#include "kernels/engram_gate.h"
#include "kernels/index_select.h"
#include "kernels/sink_attention.h"
#include "kernels/v41_rows.h"

namespace deepinfer::ref {
namespace {

float round_bf16(double x) { return to_f32(to_bf16(static_cast<float>(x))); }

std::vector<float> numbers_of(const KvRow& row, int32_t dim) {
  std::vector<float> out(static_cast<size_t>(dim));
  switch (row.kind) {
    case KvRow::Kind::kNone: break;
    case KvRow::Kind::kBf16:
      for (int32_t i = 0; i < dim; ++i) out[static_cast<size_t>(i)] = to_f32(static_cast<const bf16*>(row.values)[i]);
      break;
    case KvRow::Kind::kFp8: dequantize_fp8(static_cast<const e4m3*>(row.values), static_cast<const e8m0*>(row.scales), dim, out.data()); break;
    case KvRow::Kind::kFp4:
      dequantize_fp4_e4m3(static_cast<const uint8_t*>(row.values), static_cast<const e4m3*>(row.scales), dim, out.data());
      break;
  }
  return out;
}

}  // namespace

void v41_norm(const float* x, const bf16* w, int64_t n, float eps, float* out) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  const double scale = 1 / std::sqrt(sum / static_cast<double>(n) + static_cast<double>(eps));
  for (int64_t i = 0; i < n; ++i) out[i] = round_bf16(x[i] * scale * static_cast<double>(to_f32(w[i])));
}

void v41_swiglu(const SwigluParams& p) {
  std::vector<float> hidden(static_cast<size_t>(p.n)), rounded(hidden.size());
  for (int64_t i = 0; i < p.n; ++i) {
    const double g = std::min(p.gate[i], p.limit), u = std::min(std::max(p.up[i], -p.limit), p.limit);
    hidden[static_cast<size_t>(i)] = round_bf16(g / (1 + std::exp(-g)) * u * static_cast<double>(p.weight));
  }
  std::vector<e4m3> codes(hidden.size());
  std::vector<e8m0> scales(hidden.size() / 32);
  quantize_fp8(hidden.data(), p.n, codes.data(), scales.data());
  dequantize_fp8(codes.data(), scales.data(), p.n, rounded.data());
  for (int64_t i = 0; i < p.n; ++i) p.out[i] = to_bf16(rounded[static_cast<size_t>(i)]);
}

void engram_gate(const EngramGateParams& p) {
  for (int stream = 0; stream < 4; ++stream) {
    float* x = p.streams + int64_t{stream} * p.hidden;
    const int64_t first = int64_t{stream} * p.hidden;
    double dot = 0, xx = 0, kk = 0;
    for (int32_t c = 0; c < p.hidden; ++c) {
      const double key = p.key[first + c];
      dot += x[c] * static_cast<double>(to_f32(p.q_weight[first + c])) * static_cast<double>(to_f32(p.k_weight[first + c])) * key;
      xx += static_cast<double>(x[c]) * x[c];
      kk += key * key;
    }
    dot /= std::sqrt(xx / p.hidden + static_cast<double>(p.eps)) * std::sqrt(kk / p.hidden + static_cast<double>(p.eps)) * std::sqrt(p.hidden);
    const double gate = 1 / (1 + std::exp(-std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot)));
    for (int32_t c = 0; c < p.hidden; ++c) x[c] = round_bf16(x[c] + gate * static_cast<double>(p.value[c]));
  }
}

void index_scores(const IndexScoreParams& p) {
  std::vector<float> key(static_cast<size_t>(p.head_dim));
  for (int64_t t = 0; t < p.num_keys; ++t) {
    dequantize_fp4_e8m0(p.keys + t * p.head_dim / 2, p.key_scales + t * p.head_dim / 32, p.head_dim, key.data());
    double score = 0;
    for (int64_t h = 0; h < p.num_heads; ++h) {
      double product = 0;
      for (int64_t i = 0; i < p.head_dim; ++i) product += static_cast<double>(p.q[h * p.head_dim + i]) * static_cast<double>(key[static_cast<size_t>(i)]);
      score += static_cast<double>(round_bf16(static_cast<double>(std::max(round_bf16(product), 0.0f)) * static_cast<double>(p.weights[h])));
    }
    p.scores[t] = round_bf16(score);
  }
}

void sink_attention(const SinkAttentionParams& p) {
  const double scale = 1 / std::sqrt(static_cast<double>(p.head_dim));
  std::vector<std::vector<float>> rows;
  for (int32_t i = 0; i < p.num_rows; ++i) rows.push_back(numbers_of(p.rows[i], p.head_dim));
  for (int32_t h = 0; h < p.num_heads; ++h) {
    const bf16* q = p.q + int64_t{h} * p.head_dim;
    std::vector<double> out(static_cast<size_t>(p.head_dim));
    double top = -1e30, denominator = 0;
    for (int32_t begin = 0; begin < p.num_rows; begin += kSinkBlock) {
      const int32_t end = std::min(begin + kSinkBlock, p.num_rows);
      std::vector<double> scores;
      double new_top = top;
      for (int32_t i = begin; i < end; ++i) {
        double dot = 0;
        for (int32_t d = 0; d < p.head_dim; ++d) dot += static_cast<double>(to_f32(q[d])) * static_cast<double>(rows[static_cast<size_t>(i)][static_cast<size_t>(d)]);
        scores.push_back(dot * scale);
        if (p.rows[i].kind != KvRow::Kind::kNone) new_top = std::max(new_top, dot * scale);
      }
      const double rescale = std::exp(top - new_top);
      denominator *= rescale;
      for (double& x : out) x *= rescale;
      for (int32_t i = begin; i < end; ++i) {
        if (p.rows[i].kind == KvRow::Kind::kNone) continue;
        const double probability = std::exp(scores[static_cast<size_t>(i - begin)] - new_top);
        denominator += probability;
        const double weight = static_cast<double>(round_bf16(probability));
        for (int32_t d = 0; d < p.head_dim; ++d) out[static_cast<size_t>(d)] += weight * static_cast<double>(rows[static_cast<size_t>(i)][static_cast<size_t>(d)]);
      }
      top = new_top;
    }
    denominator += std::exp(static_cast<double>(p.sinks[h]) - top);
    for (int32_t d = 0; d < p.head_dim; ++d) p.out[int64_t{h} * p.head_dim + d] = round_bf16(out[static_cast<size_t>(d)] / denominator);
  }
}

}  // namespace deepinfer::ref
