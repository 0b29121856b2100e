#include "kernels/hyper_connection.h"

#include <cmath>
#include <gtest/gtest.h>

namespace deepinfer {
namespace {

// model.md 8.3: m_i = sin(i + 1), base_i = 0.05 i, scale (0.7, 1.3, 2.0), eps 1e-6, 20 iterations.
HyperCoefficients frozen() {
  float m[24], base[24];
  const float scale[3] = {0.7f, 1.3f, 2.0f};
  for (int i = 0; i < 24; ++i) {
    m[i] = std::sin(static_cast<float>(i + 1));
    base[i] = 0.05f * static_cast<float>(i);
  }
  HyperCoefficients c;
  hyper_coefficients_of(m, {nullptr, base, scale}, 1e-6f, 20, c);
  return c;
}

TEST(HyperConnection, FrozenCoefficients) {
  const HyperCoefficients c = frozen();
  const float pre[4] = {.64314f, .66519f, .54953f, .40619f}, post[4] = {.51976f, .94344f, 1.52051f, 1.67403f};
  const float comb[4][4] = {{.42576f, .20237f, .15691f, .21495f},
                            {.04603f, .46348f, .45288f, .03761f},
                            {.00485f, .02377f, .27798f, .69340f},
                            {.52336f, .31037f, .11223f, .05404f}};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(c.pre[i], pre[i], 6e-6);
    EXPECT_NEAR(c.post[i], post[i], 6e-6);
    for (int k = 0; k < 4; ++k) EXPECT_NEAR(c.comb[i][k], comb[i][k], 6e-6);
  }
}

// Scalar streams 1..4 and y = 10: a transposed comb would give other numbers.
TEST(HyperConnection, FrozenInAndOut) {
  const HyperCoefficients c = frozen();
  float streams[4] = {1, 2, 3, 4}, u = 0;
  const float y = 10;
  const HyperParams p{.hidden = 1, .norm_eps = 0, .hc_eps = 1e-6f, .sinkhorn_iters = 20};
  hyper_collapse(p, c.pre, streams, &u, Isa::kPortable);
  hyper_expand(p, c, &y, 0, 1, streams, Isa::kPortable);
  EXPECT_NEAR(u, 5.24687, 5.3 / 256);  // bf16
  const float expected[4] = {7.8234f, 11.8765f, 17.5506f, 19.3268f};
  for (int k = 0; k < 4; ++k) EXPECT_NEAR(streams[k], expected[k], expected[k] / 256);
}

}  // namespace
}  // namespace deepinfer
