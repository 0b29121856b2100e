// DeepSeek-V4.1's operations on rows, on every instruction set of this machine, against their definitions in double.
#include "kernels/v41_rows.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "kernels/block_quantize.h"
#include "kernels/engram_gate.h"
#include "kernels/hyper_connection.h"
#include "kernels/index_select.h"
#include "kernels/sink_attention.h"

namespace deepinfer {
namespace {

float round_bf16(float x) { return to_f32(to_bf16(x)); }

// bf16 numbers of very different sizes, zeros of both signs among them.
std::vector<float> random_numbers(Rng& rng, int64_t n, float scale = 1) {
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) {
    v = round_bf16(scale * static_cast<float>(2 * rng.uniform() - 1));
    if (rng.next_u32() % 5 == 0) v *= 0.01f;
    if (rng.next_u32() % 17 == 0) v = rng.next_u32() % 2 ? 0.0f : -0.0f;
    v = round_bf16(v);
  }
  return x;
}
std::vector<bf16> as_bf16(const std::vector<float>& x) {
  std::vector<bf16> out;
  for (const float v : x) out.push_back(to_bf16(v));
  return out;
}

// Within half a step of bf16 and what the f32 sums lose.
void expect_near_bf16(float a, float b, float slack, const std::string& what) { EXPECT_NEAR(a, b, std::fabs(b) / 128 + slack) << what; }

class V41Rows : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Isas, V41Rows, testing::ValuesIn(available_isas().begin(), available_isas().end()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

TEST_P(V41Rows, QuantisersAreTheReferenceBitForBit) {
  Rng rng(1);
  for (int round = 0; round < 200; ++round) {
    const int64_t n = 96;
    auto x = random_numbers(rng, n, std::exp2(static_cast<float>(rng.uniform() * 60 - 30)));
    if (round % 10 == 0) x[static_cast<size_t>(round % n)] = std::numeric_limits<float>::quiet_NaN();
    if (round % 25 == 7) x[40] = -std::numeric_limits<float>::infinity();
    if (round % 40 == 3) std::fill(x.begin(), x.end(), -0.0f);
    if (round % 40 == 5)
      for (float& v : x) v *= 1e-38f;
    std::vector<e4m3> codes1(n), codes2(n), s1(n / 16), s2(n / 16);
    std::vector<e8m0> scales1(n / 32), scales2(n / 32);
    std::vector<uint8_t> packed1(n / 2), packed2(n / 2);
    std::vector<bf16> back1(n);
    std::vector<float> back2(n);
    const auto same_values = [&](const char* what) {
      for (size_t i = 0; i < back1.size(); ++i) {
        const float value = to_f32(back1[i]);
        ASSERT_TRUE(std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(back2[i]) || (std::isnan(value) && std::isnan(back2[i])))
            << what << " round " << round << " at " << i << " of " << x[i] << ": " << value << " and " << back2[i];
      }
    };
    quantize_fp8(x.data(), n, codes1.data(), scales1.data(), GetParam());
    ref::quantize_fp8(x.data(), n, codes2.data(), scales2.data());
    for (size_t i = 0; i < codes1.size(); ++i) {
      const int nan_sign = (codes2[i].bits & 0x7f) == 0x7f ? 0x80 : 0;  // of no meaning
      ASSERT_EQ(codes1[i].bits | nan_sign, codes2[i].bits | nan_sign) << x[i];
    }
    for (size_t i = 0; i < scales1.size(); ++i) ASSERT_EQ(scales1[i].bits, scales2[i].bits);
    dequantize_fp8(codes2.data(), scales2.data(), n, back1.data(), GetParam());
    ref::dequantize_fp8(codes2.data(), scales2.data(), n, back2.data());
    same_values("fp8");
    round_to_fp8(x.data(), n, back1.data(), GetParam());
    same_values("fp8 round trip");

    quantize_fp4_e8m0(x.data(), n, packed1.data(), scales1.data(), GetParam());
    ref::quantize_fp4_e8m0(x.data(), n, packed2.data(), scales2.data());
    const bool nan = std::isnan(x[static_cast<size_t>(round % n)]);
    if (!nan) {
      ASSERT_EQ(packed1, packed2) << round;
    }
    for (size_t i = 0; i < scales1.size(); ++i) ASSERT_EQ(scales1[i].bits, scales2[i].bits);
    dequantize_fp4_e8m0(packed2.data(), scales2.data(), n, back1.data(), GetParam());
    ref::dequantize_fp4_e8m0(packed2.data(), scales2.data(), n, back2.data());
    same_values("fp4 e8m0");

    quantize_fp4_e4m3(x.data(), n, packed1.data(), s1.data(), GetParam());
    ref::quantize_fp4_e4m3(x.data(), n, packed2.data(), s2.data());
    if (!nan) {
      ASSERT_EQ(packed1, packed2) << round;
    }
    for (size_t i = 0; i < s1.size(); ++i) ASSERT_EQ(s1[i].bits, s2[i].bits);
    dequantize_fp4_e4m3(packed2.data(), s2.data(), n, back1.data(), GetParam());
    ref::dequantize_fp4_e4m3(packed2.data(), s2.data(), n, back2.data());
    same_values("fp4 e4m3");

    round_to_bf16(x.data(), n, back1.data(), GetParam());
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(back1[i].bits, to_bf16(x[i]).bits);
  }
}

// Every code of each format comes back as its number, and every e4m3 tie goes to the even code.
TEST_P(V41Rows, EveryCodeAndEveryTie) {
  std::vector<float> x;
  for (int code = 0; code < 126; ++code) {
    const float low = to_f32(e4m3{static_cast<uint8_t>(code)}), high = to_f32(e4m3{static_cast<uint8_t>(code + 1)});
    x.insert(x.end(), {low, -low, (low + high) / 2, -(low + high) / 2});
  }
  x.resize(31 * 31);
  for (size_t first = 0; first + 31 <= x.size(); first += 31) {
    std::vector<float> block(x.begin() + static_cast<std::ptrdiff_t>(first), x.begin() + static_cast<std::ptrdiff_t>(first) + 31);
    block.push_back(448);  // so that the scale is 1
    std::vector<e4m3> codes(32), expected(32);
    std::vector<e8m0> scales(1), expected_scales(1);
    quantize_fp8(block.data(), 32, codes.data(), scales.data(), GetParam());
    ref::quantize_fp8(block.data(), 32, expected.data(), expected_scales.data());
    for (size_t i = 0; i < 32; ++i) ASSERT_EQ(codes[i].bits, expected[i].bits) << block[i];
  }
}

TEST_P(V41Rows, NormMatches) {
  Rng rng(2);
  for (int64_t n = 1; n <= 150; ++n) {
    const auto x = random_numbers(rng, n, 3);
    const auto w = as_bf16(random_numbers(rng, n));
    std::vector<float> out1(x.size()), out2(x.size());
    v41_norm(x.data(), w.data(), n, 1e-20f, out1.data(), GetParam());
    ref::v41_norm(x.data(), w.data(), n, 1e-20f, out2.data());
    for (size_t i = 0; i < x.size(); ++i) expect_near_bf16(out1[i], out2[i], 0, "n " + std::to_string(n));
  }
}

TEST_P(V41Rows, SwigluMatches) {
  Rng rng(3);
  for (int64_t n = 32; n <= 160; n += 32) {
    auto gate = random_numbers(rng, n, 20), up = random_numbers(rng, n, 20);
    gate[3] = -120;
    std::vector<bf16> out1(gate.size()), out2(gate.size());
    SwigluParams p{.gate = gate.data(), .up = up.data(), .weight = 0.37f, .limit = 10, .n = n, .out = out1.data()};
    v41_swiglu(p, GetParam());
    p.out = out2.data();
    ref::v41_swiglu(p);
    for (size_t i = 0; i < gate.size(); ++i) EXPECT_NEAR(to_f32(out1[i]), to_f32(out2[i]), std::fabs(to_f32(out2[i])) / 8 + 1e-6) << i;  // one fp8 code
    size_t different = 0;
    for (size_t i = 0; i < gate.size(); ++i) different += to_f32(out1[i]) != to_f32(out2[i]);
    EXPECT_LE(different, 1u);
    up[9] = std::numeric_limits<float>::quiet_NaN();
    v41_swiglu(p, GetParam());  // into out2
    EXPECT_TRUE(std::isnan(to_f32(out2[9])));
    EXPECT_FALSE(std::isnan(to_f32(out2[10])));
  }
}

TEST_P(V41Rows, EngramGateMatches) {
  Rng rng(4);
  for (const int32_t hidden : {1, 31, 64, 200}) {
    const auto key = random_numbers(rng, 4 * hidden), value = random_numbers(rng, hidden), streams = random_numbers(rng, 4 * hidden, 2);
    const auto qw = as_bf16(random_numbers(rng, 4 * hidden)), kw = as_bf16(random_numbers(rng, 4 * hidden));
    auto s1 = streams, s2 = streams;
    EngramGateParams p{.key = key.data(), .value = value.data(), .q_weight = qw.data(), .k_weight = kw.data(), .streams = s1.data(), .hidden = hidden, .eps = 1e-20f};
    engram_gate(p, GetParam());
    p.streams = s2.data();
    ref::engram_gate(p);
    for (size_t i = 0; i < s1.size(); ++i) expect_near_bf16(s1[i], s2[i], 1e-5f, "hidden " + std::to_string(hidden));
  }
}

TEST_P(V41Rows, HyperConnectionsInAnyParts) {
  Rng rng(5);
  for (const int64_t hidden : {int64_t{1}, int64_t{20}, int64_t{37}, int64_t{192}}) {
    const auto fn = random_numbers(rng, 24 * 4 * hidden), streams = random_numbers(rng, 4 * hidden), y = random_numbers(rng, hidden);
    const std::vector<float> base(24, 0.1f), scale(3, 0.7f);
    const HyperWeights w{fn.data(), base.data(), scale.data()};
    const HyperParams p{.hidden = hidden, .norm_eps = 1e-20f, .hc_eps = 1e-6f, .sinkhorn_iters = 20};
    float all[24], parts[24];
    hyper_dots(p, w, streams.data(), 1, 0, 24, all, GetParam());
    for (int begin = 0; begin < 24; begin += 5) hyper_dots(p, w, streams.data(), 1, begin, std::min(begin + 5, 24), parts, GetParam());
    for (int i = 0; i < 24; ++i) {
      EXPECT_EQ(all[i], parts[i]);
      double sum = 0, size = 0;
      for (int64_t k = 0; k < 4 * hidden; ++k) {
        const double term = static_cast<double>(fn[static_cast<size_t>(i * 4 * hidden + k)]) * static_cast<double>(streams[static_cast<size_t>(k)]);
        sum += term;
        size += std::fabs(term);
      }
      EXPECT_NEAR(all[i], sum, 1e-7 * std::fabs(sum) + 1e-14 * size);
    }
    std::vector<float> seven, each(7 * 24);  // several tokens at once
    for (int t = 0; t < 7; ++t)
      for (const float x : streams) seven.push_back(x * static_cast<float>(t + 1));
    hyper_dots(p, w, seven.data(), 7, 0, 24, each.data(), GetParam());
    for (int t = 0; t < 7; ++t) {
      hyper_dots(p, w, seven.data() + t * 4 * hidden, 1, 0, 24, parts, GetParam());
      for (int i = 0; i < 24; ++i) EXPECT_EQ(each[static_cast<size_t>(t * 24 + i)], parts[i]);
    }
    HyperCoefficients c;
    hyper_coefficients(p, w, streams.data(), all, c, GetParam());
    for (int k = 0; k < 4; ++k) EXPECT_NEAR(c.comb[0][k] + c.comb[1][k] + c.comb[2][k] + c.comb[3][k], 1, 1e-4);
    std::vector<float> u(static_cast<size_t>(hidden));
    hyper_collapse(p, c.pre, streams.data(), u.data(), GetParam());
    auto mixed = streams, in_parts = streams;
    hyper_expand(p, c, y.data(), 0, hidden, mixed.data(), GetParam());
    hyper_expand(p, c, y.data(), 0, hidden / 3, in_parts.data(), GetParam());
    hyper_expand(p, c, y.data(), hidden / 3, hidden, in_parts.data(), GetParam());
    EXPECT_EQ(mixed, in_parts);
    for (int64_t i = 0; i < hidden; ++i) {
      const auto at = [&](int k) { return streams[static_cast<size_t>(k * hidden + i)]; };
      expect_near_bf16(u[static_cast<size_t>(i)], c.pre[0] * at(0) + c.pre[1] * at(1) + c.pre[2] * at(2) + c.pre[3] * at(3), 1e-6f, "collapse");
      for (int k = 0; k < 4; ++k) {
        const float expected = c.post[k] * y[static_cast<size_t>(i)] + c.comb[0][k] * at(0) + c.comb[1][k] * at(1) + c.comb[2][k] * at(2) + c.comb[3][k] * at(3);
        expect_near_bf16(mixed[static_cast<size_t>(k * hidden + i)], expected, 1e-6f, "expand");
      }
    }
  }
}

TEST_P(V41Rows, IndexScoresMatch) {
  Rng rng(6);
  for (const auto& [heads, dim] : {std::pair(4, 32), {8, 32}, {32, 128}, {33, 64}}) {
    const int32_t keys = 11;
    const auto q = random_numbers(rng, int64_t{heads} * dim, 2), weights = random_numbers(rng, heads, 0.1f);
    std::vector<uint8_t> codes(static_cast<size_t>(keys * dim / 2));
    std::vector<e8m0> scales(static_cast<size_t>(keys * dim / 32));
    for (uint8_t& code : codes) code = static_cast<uint8_t>(rng.next_u32());
    for (e8m0& scale : scales) scale.bits = static_cast<uint8_t>(124 + rng.next_u32() % 5);
    std::vector<float> got(keys), expected(keys), scratch(static_cast<size_t>(index_scratch(heads, dim)));
    IndexScoreParams p{.q = q.data(), .weights = weights.data(), .keys = codes.data(), .key_scales = scales.data(), .scores = got.data(),
                       .scratch = scratch.data(), .num_heads = heads, .head_dim = dim, .num_keys = keys, .same_query = false};
    index_scores(p, GetParam());
    p.scores = expected.data();
    ref::index_scores(p);
    float size = 0;
    for (const float w : weights) size += std::fabs(w);
    for (size_t t = 0; t < got.size(); ++t) expect_near_bf16(got[t], expected[t], size * 0.5f, "head dim " + std::to_string(dim));
    std::vector<float> again(keys);
    for (int32_t t = 0; t < keys; ++t) {  // one by one, the query as the last call left it
      p.keys = codes.data() + t * dim / 2;
      p.key_scales = scales.data() + t * dim / 32;
      p.scores = again.data() + t;
      p.num_keys = 1;
      p.same_query = true;
      index_scores(p, GetParam());
    }
    EXPECT_EQ(again, got);
  }
}

class SinkLists {
 public:
  SinkLists(Rng& rng, int32_t count, int32_t dim) {
    values_.resize(static_cast<size_t>(count));
    codes_.resize(static_cast<size_t>(count));
    scales_.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < values_.size(); ++i) {
      const auto x = random_numbers(rng, dim, 2);
      values_[i] = as_bf16(x);
      codes_[i].resize(static_cast<size_t>(dim));
      scales_[i].resize(static_cast<size_t>(dim / 16));
      switch (rng.next_u32() % 4) {
        case 0: rows.push_back({KvRow::Kind::kBf16, values_[i].data(), nullptr}); break;
        case 1:
          ref::quantize_fp8(x.data(), dim, reinterpret_cast<e4m3*>(codes_[i].data()), reinterpret_cast<e8m0*>(scales_[i].data()));
          rows.push_back({KvRow::Kind::kFp8, codes_[i].data(), scales_[i].data()});
          break;
        case 2:
          ref::quantize_fp4_e4m3(x.data(), dim, codes_[i].data(), reinterpret_cast<e4m3*>(scales_[i].data()));
          rows.push_back({KvRow::Kind::kFp4, codes_[i].data(), scales_[i].data()});
          break;
        default: rows.push_back({});
      }
    }
  }
  std::vector<KvRow> rows;

 private:
  std::vector<std::vector<bf16>> values_;
  std::vector<std::vector<uint8_t>> codes_, scales_;
};

TEST_P(V41Rows, SinkAttentionMatchesForAnyListAndAnyShareOfTheHeads) {
  Rng rng(7);
  for (const auto& [heads, dim, count] : {std::tuple(4, 64, 0), {1, 32, 1}, {4, 64, 3}, {5, 64, 64}, {7, 96, 65}, {9, 512, 200}}) {
    SinkLists list(rng, count, dim);
    const auto q = as_bf16(random_numbers(rng, int64_t{heads} * dim, 2));
    auto sinks = random_numbers(rng, heads, 3);
    if (heads > 4) sinks[4] = 120;  // far above every score
    std::vector<float> got(q.size()), expected(q.size());
    std::vector<bf16> scratch(static_cast<size_t>((kSinkBlock + 1) * dim));
    SinkAttentionParams p{.q = q.data(), .rows = list.rows.data(), .sinks = sinks.data(), .out = got.data(), .scratch = scratch.data(),
                          .num_heads = heads, .head_dim = dim, .num_rows = count};
    sink_attention(p, GetParam());
    p.out = expected.data();
    ref::sink_attention(p);
    for (size_t i = 0; i < got.size(); ++i) expect_near_bf16(got[i], expected[i], 4e-3f, std::to_string(count) + " rows at " + std::to_string(i));
    for (int32_t h = 0; h < heads; ++h) {  // a head alone
      std::vector<float> one(static_cast<size_t>(dim));
      p = {.q = q.data() + int64_t{h} * dim, .rows = list.rows.data(), .sinks = sinks.data() + h, .out = one.data(), .scratch = scratch.data(),
           .num_heads = 1, .head_dim = dim, .num_rows = count};
      sink_attention(p, GetParam());
      for (int32_t d = 0; d < dim; ++d) ASSERT_EQ(one[static_cast<size_t>(d)], got[static_cast<size_t>(h * dim + d)]);
    }
  }
}

TEST_P(V41Rows, SinkAttentionKeepsNan) {
  Rng rng(8);
  auto values = as_bf16(random_numbers(rng, 64)), q = as_bf16(random_numbers(rng, 128));
  q[70] = to_bf16(NAN);
  const KvRow row{KvRow::Kind::kBf16, values.data(), nullptr};
  const float sinks[2] = {0, 0};
  std::vector<float> out(128);
  std::vector<bf16> scratch(65 * 64);
  sink_attention({.q = q.data(), .rows = &row, .sinks = sinks, .out = out.data(), .scratch = scratch.data(), .num_heads = 2, .head_dim = 64, .num_rows = 1}, GetParam());
  EXPECT_FALSE(std::isnan(out[5]));
  EXPECT_TRUE(std::isnan(out[64 + 5]));
}

}  // namespace
}  // namespace deepinfer
