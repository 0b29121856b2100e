// engine/vocab_scan.h: the loops over a whole row of logits that sampling is made of. Pure, one thread a call. Every sum has one order,
// fixed by the row's length: eight lanes a chunk, lanes folded in pairs, chunks in turn. No step rounds otherwise on another
// instruction set (no fused multiply-add), so every version gives the same bits; they differ in speed only.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/linear.h"

namespace deepinfer::engine {

constexpr int32_t kScanBlock = 128;   // logits that share an entry of block_max
constexpr int32_t kScanChunk = 1024;  // logits a partial sum covers
inline int32_t num_scan_blocks(int32_t vocab_size) { return (vocab_size + kScanBlock - 1) / kScanBlock; }
inline int32_t num_scan_chunks(int32_t vocab_size) { return (vocab_size + kScanChunk - 1) / kScanChunk; }

// A row that find_block_max has been over.
struct ScannedRow {
  const float* x;          // [n]
  int32_t n;
  const float* block_max;  // [num_scan_blocks(n)]
};

// The loops that touch every logit, per instruction set.
struct ScanKernels {
  // x[t] = -infinity where bit t % 32 of allowed[t / 32] is 0. x [n], allowed [(n + 31) / 32].
  void (*forbid)(float* x, int32_t n, const uint32_t* allowed);
  // block_max [num_scan_blocks(n)]: the largest of each block of x [n]. Returns whether all are numbers (no NaN).
  bool (*find_block_max)(const float* x, int32_t n, float* block_max);
  // Sum of weight_of(x[i], max, inv_temperature), see below. chunk_sums [num_scan_chunks(n)]: each chunk's part. Blocks without a weight are
  // passed over, which changes no bit of the sums: of what a constraint forbids there are many.
  double (*sum_weights)(const ScannedRow& row, float max, double inv_temperature, double* chunk_sums);
};
const ScanKernels& scan_kernels(Isa isa);

// exp(t) in double for t <= 0, to about one unit in the last place; 0 below -708. A negative infinity gives 0.
double exp_of(double t);
// The weight of a logit: exp((x - max) * inv_temperature), in (0, 1] or 0.
inline double weight_of(float x, float max, double inv_temperature) {
  return exp_of((static_cast<double>(x) - static_cast<double>(max)) * inv_temperature);
}

struct Candidate {
  float logit;
  int32_t id;
};
// The order of choice: the larger logit first, ties by the lower id.
inline bool better(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

Candidate find_best(const ScannedRow& row);
// Writes all with logit >= threshold to out [n], ids ascending; returns how many.
int32_t gather_above(const ScannedRow& row, float threshold, Candidate* out);
// The best out.size() in order of choice; returns how many there are.
int32_t find_top(const ScannedRow& row, std::span<Candidate> out);

}  // namespace deepinfer::engine
