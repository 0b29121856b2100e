// Philox4x32-10 (Salmon et al. 2011): a counter-based generator. The number at (key, counter) is a pure function, so a draw
// keyed by (seed, position) does not depend on what else ran: batches, restarts and threads cannot change it.
#pragma once

#include <array>
#include <cstdint>

namespace deepinfer {

inline std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0) {
  std::array<uint32_t, 4> c{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                            static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1), static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1,
         static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

// Uniform in [0, 1) with 53 random bits.
inline double philox_uniform(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0) {
  const auto r = philox(key, counter_low, counter_high);
  return static_cast<double>((uint64_t{r[0]} << 21) ^ (r[1] >> 11)) * 0x1p-53;
}

// A stream of numbers for tests, generators and tools: Philox with a running counter.
class Rng {
 public:
  explicit Rng(uint64_t seed) : seed_(seed) {}
  uint32_t next_u32() { return philox(seed_, counter_++)[0]; }
  uint64_t next_u64() {
    const auto r = philox(seed_, counter_++);
    return uint64_t{r[0]} << 32 | r[1];
  }
  double uniform() { return philox_uniform(seed_, counter_++); }          // [0, 1)
  float normal() {                                                        // about N(0, 1): a sum of 12 uniform numbers, within ±6
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(uniform());
    return sum;
  }
  uint64_t below(uint64_t bound) {                                        // [0, bound), bound > 0; bias below 2^-32 for small bounds
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next_u64()) * bound) >> 64);
  }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

}  // namespace deepinfer
