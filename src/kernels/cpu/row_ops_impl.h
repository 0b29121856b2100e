// rms_norm, silu_mul and rope over Vec: included by row_ops_<isa>.cc, which compile it for their instruction set.
#pragma once

#include <cmath>

#include "kernels/cpu/vec.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/silu_mul.h"

namespace deepinfer {
namespace {

// f(i, load, store) for every vector of [0, n), the last one partial: lanes past n read 0 and are not written.
template <class Fn>
DI_INLINE void each_vector(int64_t n, Fn f) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) {
    f([i](const float* p) { return Vec::load(p + i); }, [i](float* p, Vec::F x) { Vec::store(p + i, x); });
  }
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    f([i, rest](const float* p) { return Vec::load_first(p + i, rest); },
      [i, rest](float* p, Vec::F x) { Vec::store_first(p + i, rest, x); });
  }
}

void rms_norm_impl(const RmsNormParams& p) {
  for (int64_t t = 0; t < p.num_rows; ++t) {
    float* x = p.x + t * p.ldx;
    float* out = p.out + t * p.ld_out;
    const float* delta = p.delta == nullptr ? nullptr : p.delta + t * p.ld_delta;
    Vec::F sum_sq = Vec::zero();
    each_vector(p.cols, [&](auto load, auto store) {
      Vec::F v = load(x);
      if (delta != nullptr) {
        v = Vec::add(v, load(delta));
        store(x, v);
      }
      sum_sq = Vec::fma(v, v, sum_sq);
    });
    const float mean = Vec::sum(sum_sq) / static_cast<float>(p.cols);
    const Vec::F scale = Vec::set1(1.0f / __builtin_sqrtf(mean + p.eps));
    each_vector(p.cols, [&](auto load, auto store) { store(out, Vec::mul(Vec::mul(load(x), scale), load(p.weight))); });
  }
}

void silu_mul_impl(const SiluMulParams& p) {
  const Vec::F one = Vec::set1(1.0f);
  for (int64_t t = 0; t < p.num_rows; ++t) {
    const float* gate = p.gate_up + t * p.ld_in;
    const float* up = gate + p.cols;
    float* out = p.out + t * p.ld_out;
    each_vector(p.cols, [&](auto load, auto store) {
      const Vec::F g = load(gate);
      // e^-|g| cannot overflow; the sigmoid of a negative g is e^g / (1 + e^g).
      const Vec::F e = exp2_vec<6>(Vec::mul(Vec::abs(g), Vec::set1(-1.44269504f)));
      const Vec::F sigmoid = Vec::div(Vec::if_negative(g, e, one), Vec::add(one, e));
      store(out, Vec::mul(Vec::mul(g, sigmoid), load(up)));
    });
  }
}

void rope_impl(const RopeParams& p) {
  const int64_t half = p.head_dim / 2;
  const float* cosine = p.cos_sin;
  const float* sine = p.cos_sin + half;
  for (int64_t h = 0; h < p.num_heads; ++h) {
    float* x = p.x + h * p.head_dim;
    if (p.interleaved) {
      for (int64_t i = 0; i < half; ++i) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cosine[i] - b * sine[i];
        x[2 * i + 1] = b * cosine[i] + a * sine[i];
      }
    } else {
      each_vector(half, [&](auto load, auto store) {
        const Vec::F a = load(x), b = load(x + half), c = load(cosine), s = load(sine);
        store(x, Vec::sub(Vec::mul(a, c), Vec::mul(b, s)));
        store(x + half, Vec::add(Vec::mul(b, c), Vec::mul(a, s)));
      });
    }
  }
}

}  // namespace
}  // namespace deepinfer
