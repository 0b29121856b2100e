// Reading panels with AVX-512: codes of a quad of k (64 bytes: 16 outputs, 4 successive k) as unsigned bytes, and scales as floats.
// For files compiled for AVX-512 only (see tiles.h).
#pragma once

// gcc 12 takes the undefined operand inside its own AVX-512 intrinsics for an uninitialised variable.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/tiles.h"

namespace deepinfer::cpu {
namespace {

using panels::Codes;
using panels::Format;
using panels::kOutputs;
using panels::kQuadBytes;

// Codes of quad J (0..7) of a group of 32 at p. Loads and masks shared by neighbouring quads are merged by the compiler.
template <Codes kCodes, int J>
DI_INLINE inline __m512i load_quad(const std::byte* p) {
  if constexpr (kCodes == Codes::k8) {
    return _mm512_load_si512(p + J * kQuadBytes);
  } else {
    const __m512i pair = _mm512_load_si512(p + J / 2 * kQuadBytes), low4 = _mm512_set1_epi8(15);
    const __m512i nibble = _mm512_and_si512(J % 2 == 0 ? pair : _mm512_srli_epi16(pair, 4), low4);
    constexpr int kAndOr = 0xEA;  // (a & b) | c
    if constexpr (kCodes == Codes::k5) {
      const __m512i plane = _mm512_load_si512(p + 256);  // bit J belongs to quad J; it goes to bit 4
      const __m512i bit = J < 4 ? _mm512_slli_epi16(plane, J < 4 ? 4 - J : 0) : _mm512_srli_epi16(plane, J < 4 ? 0 : J - 4);
      return _mm512_ternarylogic_epi64(bit, _mm512_set1_epi8(16), nibble, kAndOr);
    } else if constexpr (kCodes == Codes::k6) {
      const __m512i plane = _mm512_load_si512(p + 256 + J / 4 * kQuadBytes);
      constexpr int kBit = J % 4 * 2;
      const __m512i bits = kBit < 4 ? _mm512_slli_epi16(plane, kBit < 4 ? 4 - kBit : 0)
                                      : _mm512_srli_epi16(plane, kBit < 4 ? 0 : kBit - 4);
      return _mm512_ternarylogic_epi64(bits, _mm512_set1_epi8(48), nibble, kAndOr);
    } else if constexpr (kCodes == Codes::kTable) {
      alignas(16) static constexpr auto kUnsigned = [] {
        struct {
          uint8_t byte[16];
        } table{};
        for (int i = 0; i < 16; ++i) table.byte[i] = static_cast<uint8_t>(panels::kIq4Table[i] + 128);
        return table;
      }();
      const __m512i table = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(kUnsigned.byte)));
      return _mm512_shuffle_epi8(table, nibble);
    } else {
      return nibble;
    }
  }
}

DI_INLINE inline __m512 load_half16(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
}

// Scales and offsets of a block, one sub group after another.
template <Format F>
struct BlockScales {
  DI_INLINE explicit BlockScales(const std::byte* block) : block_(block) {
    if constexpr (F.super) {
      scale_ = load_half16(block);
      if constexpr (F.offsets) offset_ = _mm512_xor_ps(load_half16(block + 32), _mm512_set1_ps(-0.0f));
    }
  }
  DI_INLINE __m512 scale(int g) const {
    if constexpr (!F.super) return load_half16(block_ + g * 32);
    const __m128i sub = _mm_load_si128(reinterpret_cast<const __m128i*>(block_ + 64 + g * kOutputs));
    return _mm512_mul_ps(scale_, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sub)));
  }
  DI_INLINE __m512 offset(int g) const {
    if constexpr (!F.offsets) return _mm512_setzero_ps();
    if constexpr (!F.super) return load_half16(block_ + 64 + g * 32);
    constexpr int kSubGroups = F.block_sub_groups();
    const __m128i sub = _mm_load_si128(reinterpret_cast<const __m128i*>(block_ + 64 + (kSubGroups + g) * kOutputs));
    return _mm512_mul_ps(offset_, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(sub)));
  }

 private:
  const std::byte* block_;
  __m512 scale_, offset_;
};

// A chunk of a panel in plain form, for all formats of one sub group size alike.
struct alignas(64) DecodedChunk {
  static constexpr int kDepth = 512;  // k: 8 KiB of codes, in the L1 cache
  std::byte codes[kDepth * kOutputs];
  float scale[kDepth / 16 * kOutputs];
  float offset[kDepth / 16 * kOutputs];
};

// Blocks [first, first + count) of a panel. Signed codes have the zero point taken off.
template <Format F, bool kSigned>
void decode(const std::byte* panel, int64_t first, int64_t count, DecodedChunk& out) {
  constexpr int kGroups = F.block_groups(), kHeader = F.header_bytes(), kGroupBytes = F.group_bytes(), kBlock = F.block_bytes();
  constexpr int kSubGroups = F.block_sub_groups();
  const std::byte* p = panel + first * kBlock;
  std::byte* codes = out.codes;
  float *scale = out.scale, *offset = out.offset;
  for (int64_t b = 0; b < count; ++b) {
    const BlockScales<F> scales(p);
    for (int s = 0; s < kSubGroups; ++s, scale += kOutputs, offset += kOutputs) {
      _mm512_store_ps(scale, scales.scale(s));
      if constexpr (F.offsets) _mm512_store_ps(offset, scales.offset(s));
    }
    p += kHeader;
    for (int g = 0; g < kGroups; ++g, p += kGroupBytes, codes += 8 * kQuadBytes) {
      each<8>([&](auto j) DI_INLINE {
        __m512i quad = load_quad<F.codes, j>(p);
        if constexpr (kSigned && F.zero_point != 0) quad = _mm512_sub_epi8(quad, _mm512_set1_epi8(static_cast<char>(F.zero_point)));
        _mm512_store_si512(codes + j * kQuadBytes, quad);
      });
    }
  }
}

// Writes one row's 16 outputs of a panel (fewer at the end of a set), with the bias.
DI_INLINE inline void store_outputs(const Output& out, int64_t row, const PanelSet& set, int64_t panel, __m512 acc) {
  const int64_t first = panel * kOutputs, left = set.rows - first;
  const __mmask16 mask = left >= kOutputs ? __mmask16{0xffff} : static_cast<__mmask16>((1u << left) - 1);
  if (out.bias != nullptr) acc = _mm512_add_ps(acc, _mm512_maskz_loadu_ps(mask, out.bias + set.first_output + first));
  _mm512_mask_storeu_ps(out.y + row * out.ldy + set.first_output + first, mask, acc);
}

}  // namespace
}  // namespace deepinfer::cpu
