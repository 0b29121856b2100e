#include "kernels/cpu/probe_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/amx_tiles.h"

namespace deepinfer::cpu {
namespace {

// Four sums of 16x16 from two and two operands, as the largest products use them.
constexpr double kOps = 4 * 2.0 * 16 * 16;

void int8(int64_t iterations) {
  configure_tiles(16, 64);
  alignas(64) static const int8_t kOnes[1024] = {1};  // values do not matter
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, kOnes, 64);
  _tile_loadd(5, kOnes, 64);
  _tile_loadd(6, kOnes, 64);
  _tile_loadd(7, kOnes, 64);
  for (int64_t n = 0; n < iterations; ++n) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
}

void bf16(int64_t iterations) {
  configure_tiles(16, 64);
  alignas(64) static const int8_t kZeros[1024] = {0};
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, kZeros, 64);
  _tile_loadd(5, kZeros, 64);
  _tile_loadd(6, kZeros, 64);
  _tile_loadd(7, kZeros, 64);
  for (int64_t n = 0; n < iterations; ++n) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

}  // namespace

Peaks amx_peaks() { return {.int8 = {int8, kOps * 64}, .bf16 = {bf16, kOps * 32}, .f32 = {}}; }

}  // namespace deepinfer::cpu
#else
namespace deepinfer::cpu {
Peaks amx_peaks() { return {}; }
}  // namespace deepinfer::cpu
#endif
