// Packing goes through RowBlock: what one row says about one block of K, in plain numbers. One unpacker a dtype fills it, one writer
// a code kind spreads it over the panel; neither knows the other.
#include "kernels/panels.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace deepinfer::panels {
namespace {

// codes are unsigned; what the zero point or offset means is the Format's. Plain formats use scale[g], offset[g] of their two
// groups, super formats scale[0], offset[0] and the sub scales. f16 as bits.
struct RowBlock {
  uint8_t codes[256];
  uint16_t scale[2], offset[2];
  int8_t sub_scale[16];
  uint8_t sub_offset[16];
};

uint16_t u16_at(const uint8_t* b) {
  uint16_t x;
  std::memcpy(&x, b, sizeof x);
  return x;
}
uint32_t u32_at(const uint8_t* b) {
  uint32_t x;
  std::memcpy(&x, b, sizeof x);
  return x;
}

// Low nibbles are numbers 0..15 of a group of 32, high nibbles 16..31.
void nibbles(const uint8_t* q, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = q[j] & 15;
    codes[j + 16] = q[j] >> 4;
  }
}

// One group of 32 of a plain format. The file's blocks are described in dequantize.cc.
void unpack_group(DType dtype, const uint8_t* b, int group, RowBlock& out) {
  uint8_t* codes = out.codes + group * 32;
  out.scale[group] = u16_at(b);
  out.offset[group] = 0;
  switch (dtype) {
    case DType::kQ8_0:
      for (int j = 0; j < 32; ++j) codes[j] = b[2 + j] ^ 0x80;  // q + 128
      return;
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      nibbles(b + 2, codes);
      return;
    case DType::kQ4_1:
      out.offset[group] = u16_at(b + 2);
      nibbles(b + 4, codes);
      return;
    case DType::kQ5_0:
    case DType::kQ5_1: {
      const int skip = dtype == DType::kQ5_1 ? 4 : 2;
      if (dtype == DType::kQ5_1) out.offset[group] = u16_at(b + 2);
      const uint32_t high = u32_at(b + skip);
      nibbles(b + skip + 4, codes);
      for (int j = 0; j < 32; ++j) codes[j] |= static_cast<uint8_t>((high >> j & 1) << 4);
      return;
    }
    default: CHECK(false);
  }
}

// Q4_K and Q5_K: eight 6-bit scales and mins in 12 bytes.
void unpack_scale_min(const uint8_t* s, RowBlock& out) {
  for (int i = 0; i < 8; ++i) {
    out.sub_scale[i] = static_cast<int8_t>(i < 4 ? s[i] & 63 : (s[i + 4] & 15) | (s[i - 4] >> 6) << 4);
    out.sub_offset[i] = static_cast<uint8_t>(i < 4 ? s[i + 4] & 63 : s[i + 4] >> 4 | (s[i] >> 6) << 4);
  }
}

void unpack_q2_k(const uint8_t* b, RowBlock& out) {
  out.scale[0] = u16_at(b + 80);
  out.offset[0] = u16_at(b + 82);
  for (int g = 0; g < 16; ++g) {
    out.sub_scale[g] = b[g] & 15;
    out.sub_offset[g] = b[g] >> 4;
    const uint8_t* run = b + 16 + g / 8 * 32 + g % 2 * 16;
    for (int l = 0; l < 16; ++l) out.codes[g * 16 + l] = run[l] >> (g % 8 / 2 * 2) & 3;
  }
}

void unpack_q3_k(const uint8_t* b, RowBlock& out) {
  const uint8_t *high = b, *q = b + 32, *scales = b + 96;
  out.scale[0] = u16_at(b + 108);
  for (int g = 0; g < 16; ++g) {
    const int low4 = scales[g % 8] >> g / 8 * 4 & 15, high2 = scales[8 + g % 4] >> g / 4 * 2 & 3;
    out.sub_scale[g] = static_cast<int8_t>((low4 | high2 << 4) - 32);
    const int half = g % 2 * 16;
    const uint8_t* run = q + g / 8 * 32 + half;
    for (int l = 0; l < 16; ++l) {
      out.codes[g * 16 + l] = static_cast<uint8_t>((run[l] >> (g % 8 / 2 * 2) & 3) | (high[half + l] >> (g / 2) & 1) << 2);
    }
  }
}

void unpack_q4_k(const uint8_t* b, RowBlock& out) {
  out.scale[0] = u16_at(b);
  out.offset[0] = u16_at(b + 2);
  unpack_scale_min(b + 4, out);
  for (int g = 0; g < 8; ++g) {
    const uint8_t* q = b + 16 + g / 2 * 32;
    for (int l = 0; l < 32; ++l) out.codes[g * 32 + l] = q[l] >> (g % 2 * 4) & 15;
  }
}

void unpack_q5_k(const uint8_t* b, RowBlock& out) {
  out.scale[0] = u16_at(b);
  out.offset[0] = u16_at(b + 2);
  unpack_scale_min(b + 4, out);
  for (int g = 0; g < 8; ++g) {
    const uint8_t *high = b + 16, *q = b + 48 + g / 2 * 32;
    for (int l = 0; l < 32; ++l) {
      out.codes[g * 32 + l] = static_cast<uint8_t>((q[l] >> (g % 2 * 4) & 15) | (high[l] >> g & 1) << 4);
    }
  }
}

void unpack_q6_k(const uint8_t* b, RowBlock& out) {
  out.scale[0] = u16_at(b + 208);
  std::memcpy(out.sub_scale, b + 192, 16);
  for (int run = 0; run < 8; ++run) {
    const int half = run / 4, r = run % 4;
    const uint8_t *low = b + half * 64 + r % 2 * 32, *high = b + 128 + half * 32;
    for (int l = 0; l < 32; ++l) {
      out.codes[run * 32 + l] = static_cast<uint8_t>((low[l] >> (r / 2 * 4) & 15) | (high[l] >> (r * 2) & 3) << 4);
    }
  }
}

void unpack_iq4_xs(const uint8_t* b, RowBlock& out) {
  out.scale[0] = u16_at(b);
  const uint32_t high = u16_at(b + 2);
  for (int g = 0; g < 8; ++g) {
    const int scale = (b[4 + g / 2] >> (g % 2 * 4) & 15) | static_cast<int>(high >> (2 * g) & 3) << 4;
    out.sub_scale[g] = static_cast<int8_t>(scale - 32);
    nibbles(b + 8 + g * 16, out.codes + g * 32);
  }
}

// The numbers of one row for block `index` of K; past the end of a row (K is 32 more than a multiple of 64) zeros.
void unpack(DType dtype, const uint8_t* row, int64_t cols, int64_t index, RowBlock& out) {
  const DTypeInfo info = dtype_info(dtype);
  if (info.block_size == 32) {
    for (int group = 0; group < 2; ++group) {
      const int64_t file_block = index * 2 + group;
      if (file_block * 32 < cols) {
        unpack_group(dtype, row + file_block * info.block_bytes, group, out);
      } else {
        std::memset(out.codes + group * 32, 0, 32);
        out.scale[group] = out.offset[group] = 0;
      }
    }
    return;
  }
  const uint8_t* b = row + index * info.block_bytes;
  switch (dtype) {
    case DType::kQ2_K: return unpack_q2_k(b, out);
    case DType::kQ3_K: return unpack_q3_k(b, out);
    case DType::kQ4_K: return unpack_q4_k(b, out);
    case DType::kQ5_K: return unpack_q5_k(b, out);
    case DType::kQ6_K: return unpack_q6_k(b, out);
    case DType::kIQ4_XS: return unpack_iq4_xs(b, out);
    default: CHECK(false);
  }
}

void store_u16(uint8_t* p, uint16_t x) { std::memcpy(p, &x, sizeof x); }
void store_u32(uint8_t* p, uint32_t x) { std::memcpy(p, &x, sizeof x); }

void write_header(const Format& format, const RowBlock& row, int output, uint8_t* block) {
  if (!format.super) {
    for (int g = 0; g < 2; ++g) {
      store_u16(block + g * 32 + output * 2, row.scale[g]);
      if (format.offsets) store_u16(block + 64 + g * 32 + output * 2, row.offset[g]);
    }
    return;
  }
  store_u16(block + output * 2, row.scale[0]);
  if (format.offsets) store_u16(block + 32 + output * 2, row.offset[0]);
  const int n = format.block_sub_groups();
  for (int g = 0; g < n; ++g) {
    block[64 + g * kOutputs + output] = static_cast<uint8_t>(row.sub_scale[g]);
    if (format.offsets) block[64 + (n + g) * kOutputs + output] = row.sub_offset[g];
  }
}

// Codes of one group of 32 of one output, a quad (4 codes in a word) at a time. Nibble row r holds quad 2r low and quad 2r+1 high;
// the planes follow the four rows.
void write_codes(Codes kind, const uint8_t* codes, int output, uint8_t* group) {
  uint8_t* const place = group + output * 4;
  if (kind == Codes::k8) {
    for (int quad = 0; quad < 8; ++quad) store_u32(place + quad * kQuadBytes, u32_at(codes + quad * 4));
    return;
  }
  constexpr uint32_t kNibbles = 0x0f0f0f0f;
  uint32_t planes[2] = {0, 0};
  for (int row = 0; row < 4; ++row) {
    const uint32_t low = u32_at(codes + row * 8), high = u32_at(codes + row * 8 + 4);
    store_u32(place + row * kQuadBytes, (low & kNibbles) | (high & kNibbles) << 4);
    const uint32_t low_top = low >> 4 & kNibbles, high_top = high >> 4 & kNibbles;
    if (kind == Codes::k5) planes[0] |= low_top << (2 * row) | high_top << (2 * row + 1);
    if (kind == Codes::k6) planes[row / 2] |= low_top << (row % 2 * 4) | high_top << (row % 2 * 4 + 2);
  }
  if (kind == Codes::k5 || kind == Codes::k6) store_u32(place + 256, planes[0]);
  if (kind == Codes::k6) store_u32(place + 256 + kQuadBytes, planes[1]);
}

void pack_integer(DType dtype, const uint8_t* rows, int64_t num_rows, int64_t cols, uint8_t* panel) {
  const Format format = format_of(dtype);
  const int64_t stride = row_bytes(dtype, cols), blocks = (cols + format.block_k() - 1) / format.block_k();
  RowBlock row{};
  for (int64_t block = 0; block < blocks; ++block) {
    uint8_t* out = panel + block * format.block_bytes();
    for (int output = 0; output < num_rows; ++output) {
      unpack(dtype, rows + output * stride, cols, block, row);
      write_header(format, row, output, out);
      for (int g = 0; g < format.block_groups(); ++g) {
        write_codes(format.codes, row.codes + g * kGroup, output, out + format.header_bytes() + g * format.group_bytes());
      }
    }
  }
}

// [K][16] numbers of 4 or 2 bytes.
template <class T>
void pack_float(const uint8_t* rows, int64_t num_rows, int64_t cols, uint8_t* panel) {
  for (int64_t output = 0; output < num_rows; ++output) {
    const uint8_t* row = rows + output * cols * static_cast<int64_t>(sizeof(T));
    for (int64_t k = 0; k < cols; ++k) std::memcpy(panel + (k * kOutputs + output) * sizeof(T), row + k * sizeof(T), sizeof(T));
  }
}

// [K / 2][16][2]: the pairs that dot-product instructions take.
void pack_bf16(const uint8_t* rows, int64_t num_rows, int64_t cols, uint8_t* panel) {
  for (int64_t output = 0; output < num_rows; ++output) {
    const uint8_t* row = rows + output * cols * 2;
    for (int64_t k = 0; k < cols; ++k) std::memcpy(panel + (k / 2 * kOutputs + output) * 4 + k % 2 * 2, row + k * 2, 2);
  }
}

int64_t payload_bytes(DType dtype, int64_t cols) {
  switch (dtype) {
    case DType::kF32: return cols * kOutputs * 4;
    case DType::kF16: return cols * kOutputs * 2;
    case DType::kBF16: return (cols + 31) / 32 * 32 * kOutputs * 2;  // whole steps of 32, the depth of a matrix tile
    default: break;
  }
  const Format format = format_of(dtype);
  return (cols + format.block_k() - 1) / format.block_k() * format.block_bytes();
}

}  // namespace

int64_t panel_stride(DType dtype, int64_t cols) {
  const int64_t lines = (payload_bytes(dtype, cols) + 63) / 64;
  return (lines | 1) * 64;
}

void pack_panel(DType dtype, const std::byte* rows, int64_t num_rows, int64_t cols, std::byte* panel) {
  const auto* in = reinterpret_cast<const uint8_t*>(rows);
  auto* out = reinterpret_cast<uint8_t*>(panel);
  std::memset(out, 0, static_cast<size_t>(panel_stride(dtype, cols)));
  switch (dtype) {
    case DType::kF32: return pack_float<uint32_t>(in, num_rows, cols, out);
    case DType::kF16: return pack_float<uint16_t>(in, num_rows, cols, out);
    case DType::kBF16: return pack_bf16(in, num_rows, cols, out);
    default: return pack_integer(dtype, in, num_rows, cols, out);
  }
}

namespace {

float half_at(const uint8_t* b) { return to_f32(f16{u16_at(b)}); }

uint8_t code_at(Codes kind, const uint8_t* group, int quad, int place) {
  if (kind == Codes::k8) return group[quad * kQuadBytes + place];
  const uint8_t nibble = group[quad / 2 * kQuadBytes + place] >> (quad % 2 * 4) & 15;
  switch (kind) {
    case Codes::k5: return nibble | static_cast<uint8_t>((group[256 + place] >> quad & 1) << 4);
    case Codes::k6: return nibble | static_cast<uint8_t>((group[256 + quad / 4 * kQuadBytes + place] >> (quad % 4 * 2) & 3) << 4);
    case Codes::kTable: return static_cast<uint8_t>(kIq4Table[nibble] + 128);
    default: return nibble;
  }
}

}  // namespace

void decode_block(const Format& format, const std::byte* block, DecodedBlock& out) {
  const auto* in = reinterpret_cast<const uint8_t*>(block);
  const int n = format.block_sub_groups();
  for (int g = 0; g < n; ++g) {
    for (int o = 0; o < kOutputs; ++o) {
      float& scale = out.scale[g * kOutputs + o];
      float& offset = out.offset[g * kOutputs + o];
      if (format.super) {
        // Exact: 11 bits times 8.
        scale = half_at(in + o * 2) * static_cast<float>(static_cast<int8_t>(in[64 + g * kOutputs + o]));
        offset = format.offsets ? -(half_at(in + 32 + o * 2) * static_cast<float>(in[64 + (n + g) * kOutputs + o])) : 0.0f;
      } else {
        scale = half_at(in + g * 32 + o * 2);
        offset = format.offsets ? half_at(in + 64 + g * 32 + o * 2) : 0.0f;
      }
    }
  }
  for (int g = 0; g < format.block_groups(); ++g) {
    const uint8_t* group = in + format.header_bytes() + g * format.group_bytes();
    for (int quad = 0; quad < 8; ++quad) {
      for (int place = 0; place < kQuadBytes; ++place) {
        out.codes[(g * 8 + quad) * kQuadBytes + place] = code_at(format.codes, group, quad, place);
      }
    }
  }
}

}  // namespace deepinfer::panels
