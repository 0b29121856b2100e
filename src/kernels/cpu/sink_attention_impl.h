// sink_attention.h over Vec, or with dot products of bf16 pairs where the instruction set has them. Included by v41_<isa>.cc.
#pragma once

#include "kernels/cpu/block_quantize_impl.h"
#include "kernels/sink_attention.h"

namespace deepinfer {
namespace {

constexpr float kLowest = -1e30f;
constexpr float kHuge = 3e38f;  // the score of an empty place is -kHuge: finite, and far below kLowest

#if defined(__AVX512BF16__)

// Sums of products of bf16 pairs.
struct SinkProducts {
  static constexpr int kHeads = 4, kRows = 4;

  // scores[h * kSinkBlock + r] = q[h] . rows[r].
  template <int MH>
  static DI_INLINE void dots(const bf16* q, int32_t dim, const bf16* const* rows, float* scores) {
    __m512 sum[MH * kRows];
    each<MH * kRows>([&](auto i) __attribute__((always_inline)) { sum[i] = _mm512_setzero_ps(); });
    for (int32_t k = 0; k < dim; k += 32) {
      __m512i a[MH];
      each<MH>([&](auto h) __attribute__((always_inline)) { a[h] = _mm512_loadu_si512(q + h * dim + k); });
      each<kRows>([&](auto r) __attribute__((always_inline)) {
        const __m512i row = _mm512_loadu_si512(rows[r] + k);
        each<MH>([&](auto h) __attribute__((always_inline)) {
          sum[h * kRows + r] = _mm512_dpbf16_ps(sum[h * kRows + r], reinterpret_cast<__m512bh>(row), reinterpret_cast<__m512bh>(a[h]));
        });
      });
    }
    each<MH>([&](auto h) __attribute__((always_inline)) {
      Vec::store_sums(scores + h * kSinkBlock, sum[h * kRows], sum[h * kRows + 1], sum[h * kRows + 2], sum[h * kRows + 3]);
    });
  }

  // out[h] = out[h] * rescale[h] + sum over r of weights[h][r] * rows[r]. num_rows is even. Of each 32 numbers, out holds first those
  // that unpacking puts into the first vector: 0-3, 8-11, 16-19, 24-27; finish() puts them right.
  template <int MH>
  static DI_INLINE void accumulate(const uint16_t* weights, const float* rescale, const bf16* const* rows, int num_rows, int32_t dim, float* out) {
    int32_t d = 0;
    for (; d + 64 <= dim; d += 64) accumulate_part<MH, 4>(weights, rescale, rows, num_rows, dim, d, out);
    if (d < dim) accumulate_part<MH, 2>(weights, rescale, rows, num_rows, dim, d, out);
  }
  template <int MH, int Vecs>  // 16 * Vecs numbers from d on
  static DI_INLINE void accumulate_part(const uint16_t* weights, const float* rescale, const bf16* const* rows, int num_rows, int32_t dim, int32_t d,
                                        float* out) {
    __m512 sum[MH * Vecs];
    const auto place = [&](int i) __attribute__((always_inline)) { return out + i / Vecs * dim + d + i % Vecs * 16; };
    each<MH * Vecs>([&](auto i) __attribute__((always_inline)) { sum[i] = _mm512_mul_ps(_mm512_loadu_ps(place(i)), _mm512_set1_ps(rescale[i / Vecs])); });
    for (int r = 0; r < num_rows; r += 2) {
      __m512i pairs[Vecs];
      each<Vecs / 2>([&](auto v) __attribute__((always_inline)) {
        const __m512i even = _mm512_loadu_si512(rows[r] + d + v * 32), odd = _mm512_loadu_si512(rows[r + 1] + d + v * 32);
        pairs[v * 2] = _mm512_unpacklo_epi16(even, odd);
        pairs[v * 2 + 1] = _mm512_unpackhi_epi16(even, odd);
      });
      each<MH>([&](auto h) __attribute__((always_inline)) {
        int32_t pair;
        std::memcpy(&pair, weights + h * kSinkBlock + r, 4);
        const auto w = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
        each<Vecs>([&](auto v) __attribute__((always_inline)) { sum[h * Vecs + v] = _mm512_dpbf16_ps(sum[h * Vecs + v], reinterpret_cast<__m512bh>(pairs[v]), w); });
      });
    }
    each<MH * Vecs>([&](auto i) __attribute__((always_inline)) { _mm512_storeu_ps(place(i), sum[i]); });
  }
  static DI_INLINE void finish(float* out, int32_t dim) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    for (int32_t d = 0; d < dim; d += 32) {
      const __m512 low = _mm512_loadu_ps(out + d), high = _mm512_loadu_ps(out + d + 16);
      _mm512_storeu_ps(out + d, _mm512_permutex2var_ps(low, first, high));
      _mm512_storeu_ps(out + d + 16, _mm512_permutex2var_ps(low, second, high));
    }
  }
};

#else

struct SinkProducts {
  static constexpr int kHeads = Vec::kLanes == 4 ? 1 : 2, kRows = 4;

  template <int MH>
  static DI_INLINE void dots(const bf16* q, int32_t dim, const bf16* const* rows, float* scores) {
    Vec::F sum[MH * kRows];
    each<MH * kRows>([&](auto i) __attribute__((always_inline)) { sum[i] = Vec::zero(); });
    for (int32_t k = 0; k < dim; k += Vec::kLanes) {
      Vec::F a[MH];
      each<MH>([&](auto h) __attribute__((always_inline)) { a[h] = Vec::load_bf16(q + h * dim + k); });
      each<kRows>([&](auto r) __attribute__((always_inline)) {
        const Vec::F row = Vec::load_bf16(rows[r] + k);
        each<MH>([&](auto h) __attribute__((always_inline)) { sum[h * kRows + r] = Vec::fma(row, a[h], sum[h * kRows + r]); });
      });
    }
    each<MH>([&](auto h) __attribute__((always_inline)) {
      Vec::store_sums(scores + h * kSinkBlock, sum[h * kRows], sum[h * kRows + 1], sum[h * kRows + 2], sum[h * kRows + 3]);
    });
  }

  template <int MH>
  static DI_INLINE void accumulate(const uint16_t* weights, const float* rescale, const bf16* const* rows, int num_rows, int32_t dim, float* out) {
    constexpr int kVecs = 16 / Vec::kLanes;
    for (int32_t d = 0; d < dim; d += 16) {
      Vec::F sum[MH * kVecs];
      each<MH * kVecs>([&](auto i) __attribute__((always_inline)) {
        sum[i] = Vec::mul(Vec::load(out + i / kVecs * dim + d + i % kVecs * Vec::kLanes), Vec::set1(rescale[i / kVecs]));
      });
      for (int r = 0; r < num_rows; ++r) {
        Vec::F w[MH];
        each<MH>([&](auto h) __attribute__((always_inline)) { w[h] = Vec::set1(float_of(int32_t{weights[h * kSinkBlock + r]} << 16)); });
        each<kVecs>([&](auto v) __attribute__((always_inline)) {
          const Vec::F row = Vec::load_bf16(rows[r] + d + v * Vec::kLanes);
          each<MH>([&](auto h) __attribute__((always_inline)) { sum[h * kVecs + v] = Vec::fma(w[h], row, sum[h * kVecs + v]); });
        });
      }
      each<MH * kVecs>([&](auto i) __attribute__((always_inline)) { Vec::store(out + i / kVecs * dim + d + i % kVecs * Vec::kLanes, sum[i]); });
    }
  }
  static DI_INLINE void finish(float*, int32_t) {}
};

#endif

// e^x for x <= 0.
DI_INLINE float exp_of(float x) {
  float lanes[Vec::kLanes];
  Vec::store(lanes, exp_vec(Vec::set1(x)));
  return lanes[0];
}

// One head's scores of a block become weights; returns by what sums so far shrink. Places that are empty weigh 0.
DI_INLINE float soften(float* scores, uint64_t present, float scale, float& top, float& denominator, uint16_t* weights) {
  Vec::F largest = Vec::set1(top), times_zero = Vec::zero();
  if (present != ~uint64_t{0})
    for (int i = 0; i < kSinkBlock; ++i) scores[i] = present >> i & 1 ? scores[i] : -kHuge;
  for (int i = 0; i < kSinkBlock; i += Vec::kLanes) {
    const Vec::F scaled = Vec::mul(Vec::load(scores + i), Vec::set1(scale));
    times_zero = Vec::add(times_zero, Vec::mul(scaled, Vec::zero()));
    largest = Vec::max(scaled, largest);
    Vec::store(scores + i, scaled);
  }
  const bool nan = Vec::sum(times_zero) != 0;  // a NaN or an infinity among them: exp_vec makes 0 of NaN
  const float new_top = Vec::largest(largest), rescale = exp_of(top - new_top);
  Vec::F sum = Vec::zero();
  for (int i = 0; i < kSinkBlock; i += Vec::kLanes) {
    const Vec::F e = exp_vec(Vec::sub(Vec::load(scores + i), Vec::set1(new_top)));
    sum = Vec::add(sum, e);
    Vec::store_bf16(weights + i, Vec::round_bf16(e));
  }
  denominator = nan ? __builtin_nanf("") : denominator * rescale + Vec::sum(sum);
  top = new_top;
  return rescale;
}

// The rows of a block as bf16 numbers: where they lie, or decoded into scratch. Returns which places are not empty.
DI_INLINE uint64_t block_rows(const KvRow* rows, int count, int32_t dim, bf16* scratch, const bf16** at) {
  bf16* const zeros = scratch + int64_t{kSinkBlock} * dim;
  uint64_t present = 0;
  for (int i = 0; i < kSinkBlock; ++i) {
    at[i] = zeros;
    if (i >= count || rows[i].kind == KvRow::Kind::kNone) continue;
    present |= uint64_t{1} << i;
    bf16* decoded = scratch + int64_t{i} * dim;
    switch (rows[i].kind) {
      case KvRow::Kind::kBf16: at[i] = static_cast<const bf16*>(rows[i].values); continue;
      case KvRow::Kind::kFp8: dequantize_fp8_impl(static_cast<const e4m3*>(rows[i].values), static_cast<const e8m0*>(rows[i].scales), dim, decoded); break;
      default: dequantize_fp4_e4m3_impl(static_cast<const uint8_t*>(rows[i].values), static_cast<const e4m3*>(rows[i].scales), dim, decoded); break;
    }
    at[i] = decoded;
  }
  return present;
}

void sink_attention_impl(const SinkAttentionParams& p) {
  constexpr int kHeads = SinkProducts::kHeads, kRows = SinkProducts::kRows;
  const int32_t dim = p.head_dim;
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim));
  float top[kMaxSinkHeads], denominator[kMaxSinkHeads];
  for (int32_t h = 0; h < p.num_heads; ++h) top[h] = kLowest, denominator[h] = 0;
  std::memset(p.out, 0, static_cast<size_t>(p.num_heads) * static_cast<size_t>(dim) * sizeof(float));
  std::memset(p.scratch + int64_t{kSinkBlock} * dim, 0, static_cast<size_t>(dim) * sizeof(bf16));
  for (int32_t begin = 0; begin < p.num_rows; begin += kSinkBlock) {
    const int count = p.num_rows - begin < kSinkBlock ? p.num_rows - begin : kSinkBlock;
    const bf16* rows[kSinkBlock];
    const uint64_t present = block_rows(p.rows + begin, count, dim, p.scratch, rows);
    if (present == 0) continue;
    const int used = 64 - __builtin_clzll(present);  // places up to the last that is not empty
    const auto heads = [&](int32_t first, auto mh) __attribute__((always_inline)) {
      constexpr int kCount = mh;
      float scores[kCount * kSinkBlock], rescale[kCount];
      uint16_t weights[kCount * kSinkBlock];
      const bf16* q = p.q + int64_t{first} * dim;
      for (int r = 0; r < used; r += kRows) SinkProducts::dots<kCount>(q, dim, rows + r, scores + r);
      for (int h = 0; h < kCount; ++h)
        rescale[h] = soften(scores + h * kSinkBlock, present, scale, top[first + h], denominator[first + h], weights + h * kSinkBlock);
      SinkProducts::accumulate<kCount>(weights, rescale, rows, (used + 1) / 2 * 2, dim, p.out + int64_t{first} * dim);
    };
    int32_t h = 0;
    for (; h + kHeads <= p.num_heads; h += kHeads) heads(h, std::integral_constant<int, kHeads>());
    for (; h < p.num_heads; ++h) heads(h, std::integral_constant<int, 1>());
  }
  for (int32_t h = 0; h < p.num_heads; ++h) {
    float* out = p.out + int64_t{h} * dim;
    SinkProducts::finish(out, dim);
    // The sink may be far above every score (e^88 and more overflow to infinity, and the quotient to 0).
    const float sink = p.sinks[h] - top[h], whole = denominator[h] + (sink > 0 ? 1.0f / exp_of(-sink) : exp_of(sink));
    for (int32_t d = 0; d < dim; d += Vec::kLanes) Vec::store(out + d, Vec::round_bf16(Vec::div(Vec::load(out + d), Vec::set1(whole))));
  }
}

}  // namespace
}  // namespace deepinfer
