// engine/vocab_scan_impl.h: the text of the ScanKernels, compiled once for each instruction set (vocab_scan_*.cc), where the compiler
// makes native registers of the vectors below. All of it has internal linkage, or the linker could merge code of one instruction
// set into another's.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "engine/vocab_scan.h"

namespace deepinfer::engine {
namespace {

#if defined(__AVX512F__)
constexpr int32_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int32_t kVectorBytes = 32;
#else
constexpr int32_t kVectorBytes = 16;
#endif
typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef int32_t Ints __attribute__((vector_size(kVectorBytes)));
typedef float HalfFloats __attribute__((vector_size(kVectorBytes / 2)));
typedef double Doubles __attribute__((vector_size(kVectorBytes)));
typedef int64_t Longs __attribute__((vector_size(kVectorBytes)));
constexpr int32_t kFloats = kVectorBytes / 4, kDoubles = kVectorBytes / 8;
constexpr int32_t kLanes = 8;  // of a sum, whatever the registers: part of its definition
constexpr int32_t kParts = kLanes / kDoubles;
static_assert(kScanChunk % kScanBlock == 0 && kScanBlock % kLanes == 0);

constexpr float kScanInfinity = std::numeric_limits<float>::infinity();
constexpr double kLeastExponent = -708;  // below it the result would be subnormal

// exp(t) = 2^k * exp(r) with |r| <= ln(2) / 2; the Taylor polynomial of degree 12 leaves r^13 / 13! < 2e-16. D is double or Doubles,
// I the integer of the same width: one text, so that a lane and a scalar have the same bits.
template <class D, class I>
inline D exp_core(D t) {
  constexpr double kLog2E = 0x1.71547652b82fep0, kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  const D shifted = t * kLog2E + kRound;
  const D k = shifted - kRound;
  const D r = (t - k * kLn2High) - k * kLn2Low;
  D p = r * (1.0 / 479001600) + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  I bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  const I exponent = (bits << 52) + (int64_t{1023} << 52);
  D scale;
  std::memcpy(&scale, &exponent, sizeof scale);
  return p * scale;
}

inline Doubles weights_at(const float* x, double max, double inv_temperature) {
  HalfFloats half;
  std::memcpy(&half, x, sizeof half);
  const Doubles t = (__builtin_convertvector(half, Doubles) - max) * inv_temperature;
  const Doubles floor = Doubles{} + kLeastExponent;
  const Doubles result = exp_core<Doubles, Longs>(t > floor ? t : floor);
  return t < floor ? Doubles{} : result;
}

// Many masks are all ones or all zeros nearly everywhere (between values); those of texts with a bound on their length are mixed in every word.
void forbid_impl(float* x, int32_t n, const uint32_t* allowed) {
  Ints lane_bits;
  for (int32_t lane = 0; lane < kFloats; ++lane) lane_bits[lane] = int32_t{1} << lane;
  const Floats forbidden = Floats{} - kScanInfinity;
  for (int32_t begin = 0; begin < n; begin += 32) {
    const uint32_t word = allowed[begin / 32];
    if (word == ~uint32_t{0}) continue;
    if (n - begin < 32) {
      for (int32_t i = begin; i < n; ++i) x[i] = (word >> (i - begin) & 1) != 0 ? x[i] : -kScanInfinity;
      return;
    }
#pragma GCC unroll 8
    for (int32_t part = 0; part < 32; part += kFloats) {
      const Ints bits = (Ints{} + static_cast<int32_t>(word >> part)) & lane_bits;
      Floats v;
      std::memcpy(&v, x + begin + part, sizeof v);
      v = bits != 0 ? v : forbidden;
      std::memcpy(x + begin + part, &v, sizeof v);
    }
  }
}

bool find_block_max_impl(const float* x, int32_t n, float* block_max) {
  Ints ordered = ~Ints{};  // lanes become 0 by NaN, which alone is not <= infinity
  bool nan = false;
  for (int32_t begin = 0, block = 0; begin < n; begin += kScanBlock, ++block) {
    const int32_t end = begin + kScanBlock < n ? begin + kScanBlock : n;
    Floats max = Floats{} - kScanInfinity;
    int32_t i = begin;
    for (; i + kFloats <= end; i += kFloats) {
      Floats v;
      std::memcpy(&v, x + i, sizeof v);
      ordered &= v <= kScanInfinity;
      max = v > max ? v : max;
    }
    float best = -kScanInfinity;
    for (int32_t lane = 0; lane < kFloats; ++lane) best = max[lane] > best ? max[lane] : best;
    for (; i < end; ++i) {
      nan |= x[i] != x[i];
      best = x[i] > best ? x[i] : best;
    }
    block_max[block] = best;
  }
  for (int32_t lane = 0; lane < kFloats; ++lane) nan |= ordered[lane] == 0;
  return !nan;
}

// The lanes of a chunk's sum, of one block more.
inline void add_weights(const float* x, int32_t n, float max, double inv_temperature, Doubles (&sum)[kParts]) {
  int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma GCC unroll 4
    for (int32_t part = 0; part < kParts; ++part) sum[part] += weights_at(x + i + part * kDoubles, max, inv_temperature);
  }
  if (i == n) return;
  float rest[kLanes];
  for (int32_t lane = 0; lane < kLanes; ++lane) rest[lane] = i + lane < n ? x[i + lane] : -kScanInfinity;
  for (int32_t part = 0; part < kParts; ++part) sum[part] += weights_at(rest + part * kDoubles, max, inv_temperature);
}

double sum_weights_impl(const ScannedRow& row, float max, double inv_temperature, double* chunk_sums) {
  double total = 0;
  for (int32_t chunk = 0, block = 0; block * kScanBlock < row.n; ++chunk) {
    Doubles sum[kParts] = {};
    const int32_t chunk_end = block + kScanChunk / kScanBlock;
    for (; block < chunk_end && block * kScanBlock < row.n; ++block) {
      // As exp_of decides it; no other logit of the block has a greater exponent, since rounding keeps order.
      if ((static_cast<double>(row.block_max[block]) - static_cast<double>(max)) * inv_temperature < kLeastExponent) continue;
      const int32_t begin = block * kScanBlock;
      add_weights(row.x + begin, row.n - begin < kScanBlock ? row.n - begin : kScanBlock, max, inv_temperature, sum);
    }
    double s[kLanes];
    std::memcpy(s, sum, sizeof s);
    chunk_sums[chunk] = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    total += chunk_sums[chunk];
  }
  return total;
}

constexpr ScanKernels kKernels{&forbid_impl, &find_block_max_impl, &sum_weights_impl};

}  // namespace
}  // namespace deepinfer::engine
