#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/roof.h"

namespace deepinfer::cpu {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// All eight tiles 16 rows of 64 bytes. g++ 12's _tile_loadconfig says that it reads 8 bytes, so the compiler drops the stores of
// the rest; the empty asm makes it keep them.
void configure() {
  TileConfig config;
  for (int i = 0; i < 8; ++i) config.row_bytes[i] = 64, config.rows[i] = 16;
  asm volatile("" : "+m"(config));
  _tile_loadconfig(&config);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

double int8(int64_t iterations) {
  configure();
  for (int64_t n = 0; n < iterations; ++n) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
  return 2.0 * 16 * 16 * 64 * 4 * static_cast<double>(iterations);
}

double bf16(int64_t iterations) {
  configure();
  for (int64_t n = 0; n < iterations; ++n) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 2.0 * 16 * 16 * 32 * 4 * static_cast<double>(iterations);
}

}  // namespace

RoofLoops roof_loops_amx() { return {roof_loops_avx512().read, int8, bf16}; }

}  // namespace deepinfer::cpu
#endif
