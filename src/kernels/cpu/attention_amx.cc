// bf16 caches through matrix tiles: a tile register multiplies up to 16 query rows with 32 terms and 16 results at once, and the
// panels of kv_format.h are its right operand as they lie (rows of 16 pairs, two to a panel row of 128 bytes).
// A row's sum does not depend on how many rows a tile has, so decode and prefill give the same bits here too.
#include "kernels/cpu/attention_bf16.h"

namespace deepinfer::cpu {
namespace {

constexpr int kPanelRow = 128;  // bytes

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0 to 5 hold `rows` rows (results and left operands), 6 and 7 hold 16 (right operands).
void configure(int rows) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = 64;
    config.rows[i] = static_cast<uint8_t>(i < 6 ? rows : 16);
  }
  _tile_loadconfig(&config);
}

struct AmxPolicy : Bf16Weights {
  // c[r, 0..31] from all panels; 32 terms of each panel at a time.
  static void product(const uint16_t* a, int64_t lda, int, const std::byte* const* panels, int count, int n, float* c, int64_t ldc) {
    _tile_zero(0);
    _tile_zero(1);
    for (int p = 0; p < count; ++p) {
      for (int i = 0; i < n; i += 32, a += 32) {
        const std::byte* panel = panels[p] + i / 2 * kPanelRow;
        _tile_loadd(4, a, lda * 2);
        _tile_loadd(6, panel, kPanelRow);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, panel + 64, kPanelRow);
        _tile_dpbf16ps(1, 4, 7);
      }
    }
    _tile_stored(0, c, ldc * 4);
    _tile_stored(1, c + 16, ldc * 4);
  }
};

}  // namespace

void attend_partition_amx(const AttentionTile& tile) {
  if (tile.kv.format != KvFormat::kBf16) return attend_partition_float(tile);
  configure(tile.num_rows);
  attend_partition_impl<AmxPolicy>(tile);
  _tile_release();  // live tiles cost 8 KiB a context switch, and other kernels configure their own
}

}  // namespace deepinfer::cpu
