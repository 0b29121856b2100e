#include "kernels/index_select.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/v41_kernels.h"

namespace deepinfer {
void index_scores(const IndexScoreParams& p, Isa isa) {
  DCHECK(p.head_dim % 32 == 0);
  DCHECK(p.head_dim <= kMaxIndexDim);
  cpu::v41_kernels(isa).index_scores(p);
}

int32_t select_top(std::span<const float> scores, int32_t k, int32_t* out, int32_t* scratch) {
  int32_t count = 0;
  for (size_t t = 0; t < scores.size(); ++t)
    if (scores[t] != -std::numeric_limits<float>::infinity()) scratch[count++] = static_cast<int32_t>(t);
  const auto better = [&](int32_t a, int32_t b) {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  if (count > k) {
    std::nth_element(scratch, scratch + k, scratch + count, better);
    count = k;
  }
  std::sort(scratch, scratch + count);
  std::copy(scratch, scratch + count, out);
  return count;
}

void choose_blocks(std::span<const float> scores, int32_t block, int32_t num_blocks, uint8_t* chosen, float* block_scores, int32_t* scratch) {
  const int32_t visible = static_cast<int32_t>(scores.size());
  const int32_t count = (visible + block - 1) / block;
  for (int32_t b = 0; b < count; ++b) {
    block_scores[b] = *std::max_element(scores.begin() + b * block, scores.begin() + std::min((b + 1) * block, visible));
    chosen[b] = 0;
  }
  if (count == 0) return;
  block_scores[count - 1] = std::numeric_limits<float>::infinity();
  int32_t* picked = scratch + count;
  const int32_t num_picked = select_top({block_scores, static_cast<size_t>(count)}, num_blocks, picked, scratch);
  for (int32_t i = 0; i < num_picked; ++i) chosen[picked[i]] = 1;
}

}  // namespace deepinfer
