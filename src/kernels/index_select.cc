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

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr uint32_t kLowest = 0x80, kInfinity = 0xff80;  // ranks of the finite number of the largest magnitude below 0, and of infinity

// bf16 numbers in order of size: 0x8000 is zero.
float number_of(uint32_t rank) { return std::bit_cast<float>((rank >= 0x8000 ? rank - 0x8000 : 0xffff - rank) << 16); }

}  // namespace

// The score of the k-th best by halving the range of numbers, which takes 16 counts; then one walk takes what is above it, and as many equal
// ones as are left. (Counting digit by digit reads less, but an element at a time.)
int32_t select_top(std::span<const float> scores, int32_t k, int32_t* out, Isa isa) {
  const auto at_least = [&](uint32_t rank) {
    return cpu::v41_kernels(isa).count_at_least(scores.data(), static_cast<int64_t>(scores.size()), number_of(rank));
  };
  float bound = kNone;   // what is above it is taken
  int64_t num_equal = 0;  // of those that equal it
  if (at_least(kLowest) > k) {
    uint32_t low = kLowest, high = kInfinity + 1;  // `low` or better are k at least, `high` or better fewer
    int64_t num_above = 0;
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      const int64_t count = at_least(middle);
      if (count >= k) low = middle;
      else high = middle, num_above = count;
    }
    bound = number_of(low);
    num_equal = k - num_above;
  }
  int32_t count = 0;
  for (size_t t = 0; t < scores.size(); ++t) {
    if (scores[t] > bound || (scores[t] == bound && num_equal-- > 0)) out[count++] = static_cast<int32_t>(t);
  }
  return count;
}

void choose_blocks(std::span<const float> scores, int32_t block, int32_t num_blocks, uint8_t* chosen, float* block_scores, int32_t* picked, Isa isa) {
  const int32_t visible = static_cast<int32_t>(scores.size());
  const int32_t count = (visible + block - 1) / block;
  for (int32_t b = 0; b < count; ++b) {
    block_scores[b] = *std::max_element(scores.begin() + b * block, scores.begin() + std::min((b + 1) * block, visible));
    chosen[b] = 0;
  }
  if (count == 0) return;
  block_scores[count - 1] = std::numeric_limits<float>::infinity();
  const int32_t num_picked = select_top({block_scores, static_cast<size_t>(count)}, num_blocks, picked, isa);
  for (int32_t i = 0; i < num_picked; ++i) chosen[picked[i]] = 1;
}

}  // namespace deepinfer
