#include "kernels/index_select.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/v41_kernels.h"

namespace deepinfer {
void index_scores(const IndexScoreParams& p, Isa isa) {
  DCHECK(p.head_dim % 32 == 0);
  DCHECK(p.head_dim <= kMaxIndexDim);
  cpu::v41_kernels(isa).index_scores(p);
}

namespace {

// bf16 numbers as integers of the same order; both zeros are equal.
uint32_t rank_of(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score) >> 16;
  if ((bits & 0x7fff) == 0) return 0x8000;
  return bits & 0x8000 ? 0xffff - bits : bits + 0x8000;
}

}  // namespace

// The score of the k-th best by counting, digit by digit; then one walk takes what is above it, and as many equal ones as are left.
int32_t select_top(std::span<const float> scores, int32_t k, int32_t* out) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  int32_t present = 0, counts[256] = {};
  for (const float score : scores) {
    if (score == kNone) continue;
    ++present;
    ++counts[rank_of(score) >> 8];
  }
  int32_t equal = present;  // how many of rank `lowest` to take
  uint32_t lowest = 0;
  if (present > k) {
    equal = k;
    uint32_t high = 255;
    for (; equal > counts[high]; --high) equal -= counts[high];
    std::fill(counts, counts + 256, 0);
    for (const float score : scores)
      if (rank_of(score) >> 8 == high && score != kNone) ++counts[rank_of(score) & 255];
    uint32_t low = 255;
    for (; equal > counts[low]; --low) equal -= counts[low];
    lowest = high << 8 | low;
  }
  int32_t count = 0;
  for (size_t t = 0; t < scores.size(); ++t) {
    const uint32_t rank = rank_of(scores[t]);
    if (rank < lowest || scores[t] == kNone || (rank == lowest && equal-- <= 0)) continue;
    out[count++] = static_cast<int32_t>(t);
  }
  return count;
}

void choose_blocks(std::span<const float> scores, int32_t block, int32_t num_blocks, uint8_t* chosen, float* block_scores, int32_t* picked) {
  const int32_t visible = static_cast<int32_t>(scores.size());
  const int32_t count = (visible + block - 1) / block;
  for (int32_t b = 0; b < count; ++b) {
    block_scores[b] = *std::max_element(scores.begin() + b * block, scores.begin() + std::min((b + 1) * block, visible));
    chosen[b] = 0;
  }
  if (count == 0) return;
  block_scores[count - 1] = std::numeric_limits<float>::infinity();
  const int32_t num_picked = select_top({block_scores, static_cast<size_t>(count)}, num_blocks, picked);
  for (int32_t i = 0; i < num_picked; ++i) chosen[picked[i]] = 1;
}

}  // namespace deepinfer
