// What differs between instruction sets in DeepSeek-V4.1's operations on rows (block_quantize.h, v41_rows.h, hyper_connection.h,
// sink_attention.h, index_select.h, full_attention.h): one table of functions each. Everything runs on the calling thread.
#pragma once

#include "kernels/block_quantize.h"
#include "kernels/engram_gate.h"
#include "kernels/hyper_connection.h"
#include "kernels/index_select.h"
#include "kernels/sink_attention.h"
#include "kernels/v41_rows.h"

namespace deepinfer::cpu {

constexpr int kFullAttentionTile = 8, kFullAttentionLanes = 16;  // query rows that share a pass over the keys; keys of a panel
// Tile of full_attention: layouts as in FullAttentionScratch.
struct FullAttentionTileParams {
  const float* queries;  // [kFullAttentionTile, head_dim]
  const float* keys;     // of the head
  const float* values;
  int64_t num_keys, head_dim;
  float scale;
  float* scores;         // [kFullAttentionTile, num_keys rounded up to 16], scratch
  float* out;            // [kFullAttentionTile, head_dim rounded up to 16]
};

struct V41Kernels {
  void (*round_to_bf16)(const float* x, int64_t n, bf16* out);
  void (*round_to_fp8)(const float* x, int64_t n, bf16* out);
  void (*quantize_fp8)(const float* x, int64_t n, e4m3* codes, e8m0* scales);
  void (*quantize_fp4_e8m0)(const float* x, int64_t n, uint8_t* codes, e8m0* scales);
  void (*quantize_fp4_e4m3)(const float* x, int64_t n, uint8_t* codes, e4m3* scales);
  void (*dequantize_fp8)(const e4m3* codes, const e8m0* scales, int64_t n, bf16* out);
  void (*dequantize_fp4_e8m0)(const uint8_t* codes, const e8m0* scales, int64_t n, bf16* out);
  void (*dequantize_fp4_e4m3)(const uint8_t* codes, const e4m3* scales, int64_t n, bf16* out);
  void (*norm_row)(const float* x, const bf16* w, int64_t n, float eps, float* out);
  void (*swiglu_row)(const SwigluParams& p);
  void (*engram_gate)(const EngramGateParams& p);
  void (*hyper_dots)(const float* streams, const float* fn, int64_t width, int64_t num_tokens, int32_t begin, int32_t end, float* m);
  float (*sum_of_squares)(const float* v, int64_t n);
  void (*hyper_collapse_row)(const float* pre, const float* streams, int64_t hidden, float* u);
  void (*hyper_expand_row)(const HyperCoefficients& c, const float* y, int64_t hidden, int64_t begin, int64_t end, float* streams);
  void (*sink_attention)(const SinkAttentionParams& p);
  void (*index_scores)(const IndexScoreParams& p);
  int64_t (*count_at_least)(const float* x, int64_t n, float bound);
  void (*full_attention)(const FullAttentionTileParams& p);
};
// What a file that includes the *_impl.h of all of them puts into its table.
#define DI_V41_KERNELS                                                                                                               \
  {round_to_bf16_impl,  round_to_fp8_impl,          quantize_fp8_impl,          quantize_fp4_e8m0_impl,  quantize_fp4_e4m3_impl,     \
   dequantize_fp8_impl, dequantize_fp4_e8m0_impl,   dequantize_fp4_e4m3_impl,   norm_row_impl,           swiglu_row_impl,            \
   engram_gate_impl,    hyper_dots_impl,            sum_of_squares_impl,        hyper_collapse_row_impl, hyper_expand_row_impl,      \
   sink_attention_impl, index_scores_impl,          count_at_least_impl,        full_attention_impl}
const V41Kernels& v41_kernels_portable();
const V41Kernels& v41_kernels_avx2();
const V41Kernels& v41_kernels_avx512f();
const V41Kernels& v41_kernels_avx512();
// Those of an instruction set.
const V41Kernels& v41_kernels(Isa isa);

}  // namespace deepinfer::cpu
