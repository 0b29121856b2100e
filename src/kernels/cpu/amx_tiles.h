// Configuring the tile registers. For files compiled for AMX only (see tiles.h).
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace deepinfer::cpu {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int num_rows, int bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};

// All eight tiles alike. Each thread configures its own, and releases them when done: live tiles cost 8 KiB a context switch.
inline void configure_tiles(int rows, int row_bytes) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) config.set(tile, rows, row_bytes);
  _tile_loadconfig(&config);
}

}  // namespace
}  // namespace deepinfer::cpu
