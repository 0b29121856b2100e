// The walk that the grouped integer products of AVX2 and AVX-512 share: blocks of rows that stay in the L2 cache, panel by panel, each
// panel decoded a chunk at a time into the L1 cache and multiplied with all rows of the block. For files compiled for an instruction
// set (see tiles.h). The walk of AMX is another one: two panels at a time, between tile configurations.
#pragma once

#include <cstring>

#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/tiles.h"

namespace deepinfer::cpu {
namespace {

using panels::kOutputs;

// What is decoded next, fetched into the L2 cache while the chunk before it is multiplied: decoding waits for memory, products do not.
struct Ahead {
  const std::byte* at = nullptr;
  int64_t group_bytes = 0;  // for each group of 32 k that is multiplied

  DI_INLINE void fetch() {
    for (int64_t i = 0; i < group_bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
    at += group_bytes;
  }
};

// Chunk: a panel's decoded numbers, Chunk::kDepth k of them at most.
template <class Chunk>
struct ChunkKernels {
  // Decodes blocks [first, first + count) of a panel.
  void (*decode)(const std::byte* panel, int64_t first, int64_t count, Chunk& out);
  // Adds the products of rows [first_row, first_row + num_rows) with the chunk, which holds [k, k + depth), to acc [num_rows, 16]; fetches `next`.
  void (*rows)(const Rows&, int64_t first_row, int64_t num_rows, int64_t k, const Chunk&, int64_t depth, const Ahead& next, float* acc);
};

// Panels [begin, end). store(row, panel, acc): writes the sums acc [16] of one row and panel.
template <int64_t kRowBlock, class Chunk, class Store>
void walk_chunks(const PanelSet& set, const Rows& rows, int64_t num_rows, int64_t begin, int64_t end, const ChunkKernels<Chunk>& kernels,
                 Store store) {
  static_assert(Chunk::kDepth % 256 == 0);  // whole blocks of every format
  const int64_t block_k = set.format.block_k(), blocks = (set.cols + block_k - 1) / block_k, step = Chunk::kDepth / block_k;
  const int64_t block_bytes = set.format.block_bytes(), group_bytes = block_bytes / set.format.block_groups();
  Chunk chunk;
  alignas(64) float acc[kRowBlock * kOutputs];
  for (int64_t row = 0; row < num_rows; row += kRowBlock) {
    const int64_t count = num_rows - row < kRowBlock ? num_rows - row : kRowBlock;
    for (int64_t panel = begin; panel < end; ++panel) {
      std::memset(acc, 0, static_cast<size_t>(count) * kOutputs * sizeof(float));
      for (int64_t b = 0; b < blocks; b += step) {
        const int64_t here = blocks - b < step ? blocks - b : step;
        kernels.decode(set.data + panel * set.stride, b, here, chunk);
        const Ahead next{set.data + panel * set.stride + (b + here) * block_bytes, group_bytes};
        kernels.rows(rows, row, count, b * block_k, chunk, here * block_k, next, acc);
      }
      for (int64_t i = 0; i < count; ++i) store(row + i, panel, acc + i * kOutputs);
    }
  }
}

}  // namespace
}  // namespace deepinfer::cpu
