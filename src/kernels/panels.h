// Panels: weights as the kernels read them (docs/formats/panels.md has every byte). A panel holds 16 outputs over all of K, as one
// linear stream of blocks; integer weights keep the exact numbers of the file, re-arranged, never re-rounded.
//
//   w[n, k] = scale[n, group(k)] * (code[n, k] - zero_point) + offset[n, group(k)]
//
// One layout for all instruction sets and for both modes of Activations, so that a matrix packed once serves whichever kernel a
// batch size asks for. Pure functions over memory; no thread but the caller's.
// The alternative that lost: a layout for each instruction set. AVX-512 wants 64-byte rows, and the others read them as well.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace deepinfer::panels {

constexpr int kOutputs = 16;                // of one panel
constexpr int kQuadBytes = 4 * kOutputs;    // one row of codes: four successive k of 16 outputs, [16][4]
constexpr int kGroup = 32;                  // numbers along K that share an activation scale

// How codes lie. k4: nibbles. k5: nibbles and a plane of fifth bits. k6: nibbles and a plane of 2 bits.
// kTable: nibbles that stand for kIq4Table's numbers (plus 128, so that they are unsigned).
enum class Codes : uint8_t { k8, k4, k5, k6, kTable };

inline constexpr int8_t kIq4Table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// A structural type: kernels are templates over it.
struct Format {
  Codes codes;
  int sub_group;    // numbers that share a weight scale: 16 or 32
  bool super;       // scale = f16 of 256 numbers times an int8 of each sub group; else an f16 of each group of 32
  bool offsets;     // there is an offset for each sub group; then zero_point is 0
  int zero_point;

  constexpr int block_k() const { return super ? 256 : 64; }
  constexpr int block_sub_groups() const { return block_k() / sub_group; }
  constexpr int block_groups() const { return block_k() / kGroup; }
  // Ahead of a block's codes. super: scale f16 [16], offset f16 [16], sub scales i8 [sub groups][16], sub offsets u8 alike
  // (if any); else scales f16 [2][16], offsets f16 [2][16] (if any).
  constexpr int header_bytes() const {
    return super ? 64 + block_sub_groups() * kOutputs * (offsets ? 2 : 1) : 64 * (offsets ? 2 : 1);
  }
  // Codes of 32 numbers of 16 outputs.
  constexpr int group_bytes() const {
    switch (codes) {
      case Codes::k8: return 512;
      case Codes::k5: return 320;
      case Codes::k6: return 384;
      case Codes::k4:
      case Codes::kTable: return 256;
    }
    return 0;
  }
  constexpr int block_bytes() const { return header_bytes() + block_groups() * group_bytes(); }
  constexpr bool operator==(const Format&) const = default;
};

constexpr bool is_integer(DType dtype) {
  return dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16;
}

// Of an integer dtype.
constexpr Format format_of(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0: return {Codes::k4, 32, false, false, 8};
    case DType::kQ4_1: return {Codes::k4, 32, false, true, 0};
    case DType::kQ5_0: return {Codes::k5, 32, false, false, 16};
    case DType::kQ5_1: return {Codes::k5, 32, false, true, 0};
    case DType::kQ2_K: return {Codes::k4, 16, true, true, 0};
    case DType::kQ3_K: return {Codes::k4, 16, true, false, 4};
    case DType::kQ4_K: return {Codes::k4, 32, true, true, 0};
    case DType::kQ5_K: return {Codes::k5, 32, true, true, 0};
    case DType::kQ6_K: return {Codes::k6, 16, true, false, 32};
    case DType::kIQ4_NL: return {Codes::kTable, 32, false, false, 128};
    case DType::kIQ4_XS: return {Codes::kTable, 32, true, false, 128};
    case DType::kQ8_0:
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8_E4M3:
    case DType::kF8_E8M0:
    case DType::kI8: break;
  }
  return {Codes::k8, 32, false, false, 128};  // Q8_0
}

constexpr int64_t num_panels(int64_t rows) { return (rows + kOutputs - 1) / kOutputs; }
// Bytes from one panel to the next: an odd number of cache lines, so that panels read side by side do not share cache sets.
int64_t panel_stride(DType dtype, int64_t cols);

// Writes one panel from up to 16 rows of the file. rows: the first row, row_bytes(dtype, cols) apart; missing outputs
// (num_rows < 16) become zeros. Any NaN or infinity among the scales is kept.
void pack_panel(DType dtype, const std::byte* rows, int64_t num_rows, int64_t cols, std::byte* panel);

// A block in the form that all kernels can read: codes as bytes [block_k / 4][16][4], scales and offsets [sub groups][16].
struct alignas(64) DecodedBlock {
  uint8_t codes[256 * kOutputs];
  float scale[16 * kOutputs];
  float offset[16 * kOutputs];
};
// The plain version; the kernels have their own.
void decode_block(const Format& format, const std::byte* block, DecodedBlock& out);

}  // namespace deepinfer::panels
