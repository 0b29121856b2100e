// bf16 caches through vdpbf16ps, which takes both numbers of a pair in one instruction; the other formats in float.
#include "kernels/cpu/attention_bf16.h"

namespace deepinfer::cpu {
namespace {

// The activation pair is broadcast from memory inside the instruction: no register and no load of its own.
DI_INLINE void dot_pair(__m512& sum, __m512bh panel, const uint16_t* pair) {
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(panel), "m"(*reinterpret_cast<const int32_t*>(pair)));
}

struct Bf16Policy : Bf16Weights {
  template <int MR>
  static __attribute__((noinline)) void block(const uint16_t* a, int64_t lda, const std::byte* const* panels, int count, int n, float* c,
                                              int64_t ldc) {
    __m512 sum[MR][2];
    each<MR>([&](auto r) { sum[r][0] = sum[r][1] = _mm512_setzero_ps(); });
    for (int p = 0; p < count; ++p) {
      const std::byte* panel = panels[p];
      for (int i = 0; i < n; i += 2, panel += 128, a += 2) {
        const auto w0 = reinterpret_cast<__m512bh>(_mm512_load_si512(panel)), w1 = reinterpret_cast<__m512bh>(_mm512_load_si512(panel + 64));
        each<MR>([&](auto r) __attribute__((always_inline)) {
          dot_pair(sum[r][0], w0, a + r * lda);
          dot_pair(sum[r][1], w1, a + r * lda);
        });
      }
    }
    each<MR>([&](auto r) {
      _mm512_storeu_ps(c + r * ldc, sum[r][0]);
      _mm512_storeu_ps(c + r * ldc + 16, sum[r][1]);
    });
  }
  static void product(const uint16_t* a, int64_t lda, int rows, const std::byte* const* panels, int count, int n, float* c, int64_t ldc) {
    row_blocks<12>(rows, [&](int r, auto mr) {
      block<decltype(mr)::value>(a + r * lda, lda, panels, count, n, c + r * ldc, ldc);
    });
  }
};

}  // namespace

void attend_partition_avx512(const AttentionTile& tile) {
  if (tile.kv.format == KvFormat::kBf16) return attend_partition_impl<Bf16Policy>(tile);
  attend_partition_float(tile);
}

}  // namespace deepinfer::cpu
