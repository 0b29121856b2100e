// The work that differs between instruction sets: a tile of query rows against one partition of keys.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_format.h"

namespace deepinfer::cpu {

constexpr int32_t kMaxTileRows = 16;
constexpr int32_t kScoreStride = 512 + 16;  // floats a row of scores; not a power of two, which would share cache sets

struct AttentionTile {
  const std::byte* queries;            // [num_rows, padded_dim], contiguous
  int32_t num_rows;                    // 1..tile rows of the version
  const std::byte* const* head_blocks; // [num_blocks]
  int32_t num_blocks;                  // 1..16
  const int32_t* begin;                // [num_rows] the row sees keys [begin, end) of these blocks; none if begin >= end
  const int32_t* end;
  KvShape kv;
  bool cold;                           // no other tile has just read these keys: fetch ahead of use
  float scale;                         // of scores, log2(e) included: weights are powers of 2
  float* scores;                       // scratch [kMaxTileRows, kScoreStride]
  float* weights;                      // scratch of the same size
  float* out;                          // [num_rows, padded_dim]: sum of weight times value
  float* max;                          // [num_rows]: largest scaled score; -infinity if the row sees none
  float* sum;                          // [num_rows]: of the weights 2^(score - max); 0 if the row sees none
};
using AttendPartition = void (*)(const AttentionTile&);

void attend_partition_portable(const AttentionTile& tile);
void attend_partition_avx2(const AttentionTile& tile);
void attend_partition_avx512(const AttentionTile& tile);
void attend_partition_amx(const AttentionTile& tile);

}  // namespace deepinfer::cpu
