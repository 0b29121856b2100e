// Attention over paged panels: every format and instruction set against the definition on what the cache holds, and the same
// bits for every way to cut the work.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "kernels/attention.h"

namespace deepinfer {
namespace {

class PlainTeam final : public Team {  // attention() meets nobody inside
 public:
  PlainTeam(int index, int size) : Team(index, size) {}
  void barrier() override {}
  int64_t next_ticket() override { return 0; }
  void reset_tickets() override {}
};

// One sequence's cache and queries.
struct Sequence {
  AttentionShape shape;
  int32_t num_tokens;
  std::vector<float> queries, keys, values;  // [token][head][dim]
  std::vector<std::byte> arena;
  std::vector<int32_t> block_table;
  int64_t block_bytes, layer_offset;

  Sequence(const AttentionShape& s, int32_t n, uint64_t seed) : shape(s), num_tokens(n) {
    Rng rng(seed);
    const auto fill = [&](std::vector<float>& x, int32_t heads, double scale) {
      x.resize(static_cast<size_t>(n) * heads * s.kv.head_dim);
      for (float& v : x) v = static_cast<float>(scale * (2 * rng.uniform() - 1));
    };
    fill(queries, s.num_heads, 2);
    fill(keys, s.kv.num_kv_heads, 2);
    fill(values, s.kv.num_kv_heads, 1);
    const int32_t blocks = (n + kKvBlockTokens - 1) / kKvBlockTokens;
    layer_offset = s.kv.layer_bytes();  // a second layer lies before this one
    block_bytes = 2 * s.kv.layer_bytes();
    arena.resize(static_cast<size_t>(block_bytes * (blocks + 3)) + 64, std::byte{0xff});  // 0xffff and 0xffffffff are NaN
    for (int32_t b = 0; b < blocks; ++b) block_table.push_back(b);
    for (size_t i = block_table.size(); i > 1; --i) std::swap(block_table[i - 1], block_table[rng.below(i)]);
  }
  std::byte* base() { return arena.data() + (64 - reinterpret_cast<uintptr_t>(arena.data()) % 64) % 64; }
  std::byte* head_block(int32_t token, int32_t head) {
    return base() + block_table[static_cast<size_t>(token / kKvBlockTokens)] * block_bytes + layer_offset + head * shape.kv.head_block_bytes();
  }
  const float* at(const std::vector<float>& x, int32_t token, int32_t head, int32_t heads) const {
    return x.data() + (int64_t{token} * heads + head) * shape.kv.head_dim;
  }
  void store_token(int32_t t) {
    const int32_t heads = shape.kv.num_kv_heads;
    for (int32_t h = 0; h < heads; ++h) kv_store(shape.kv, at(keys, t, h, heads), at(values, t, h, heads), t % kKvBlockTokens, head_block(t, h));
  }

  // Attention of rows [first, first + rows), with `threads` threads.
  std::vector<float> run(Isa isa, int32_t first, int32_t rows, int32_t window, int32_t threads, int32_t plan_threads) {
    const QueryFormat format = attention_query_format(shape.kv.format, isa);
    const int32_t dim = shape.kv.padded_dim(), group = shape.group();
    const int64_t query_bytes = int64_t{dim} * (format == QueryFormat::kBf16 ? 2 : 4);
    std::vector<std::byte> q(static_cast<size_t>(rows * shape.num_heads * query_bytes));
    for (int32_t h = 0; h < shape.num_heads; ++h) {
      for (int32_t t = 0; t < rows; ++t) {
        std::byte* out = q.data() + ((int64_t{h / group} * rows + t) * group + h % group) * query_bytes;
        query_store(at(queries, first + t, h, shape.num_heads), shape.kv.head_dim, dim, format, out);
      }
    }
    AttentionPlan plan(shape, isa, {.max_rows = rows, .max_spans = 1, .max_context = num_tokens, .num_threads = plan_threads});
    const AttentionSpan span{.first_row = 0, .num_rows = rows, .start = first, .first_out_row = 0, .block_table = block_table.data()};
    plan.build(std::span(&span, 1));
    const int64_t ld = shape.num_heads * shape.kv.head_dim + 3;
    std::vector<float> out(static_cast<size_t>(rows * ld));
    const AttentionParams p{.queries = q.data(), .num_rows = rows, .arena = base(), .block_bytes = block_bytes, .layer_offset = layer_offset,
                            .scale = scale(), .window = window, .out = out.data(), .ld_out = ld};
    for (int use = 0; use < 2; ++use) {  // a plan serves every layer
      std::fill(out.begin(), out.end(), 0.0f);
      std::vector<std::thread> others;
      for (int i = 0; i < threads; ++i) {
        others.emplace_back([&, i] {
          PlainTeam team(i, threads);
          attention(p, plan, team);
        });
      }
      for (auto& t : others) t.join();
    }
    return out;
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape.kv.head_dim)); }

  // The same by the definition, from the keys and values as the cache holds them.
  std::vector<float> expected(int32_t token, int32_t window) {
    std::vector<float> out;
    const auto dim = static_cast<size_t>(shape.kv.head_dim);
    for (int32_t h = 0; h < shape.num_heads; ++h) {
      std::vector<float> k((static_cast<size_t>(token) + 1) * dim), v(k.size()), row(dim);
      for (int32_t t = 0; t <= token; ++t) {
        ref::kv_load(shape.kv, head_block(t, h / shape.group()), t % kKvBlockTokens, k.data() + static_cast<size_t>(t) * dim, v.data() + static_cast<size_t>(t) * dim);
      }
      ref::attention_row({.query = at(queries, token, h, shape.num_heads), .keys = k.data(), .values = v.data(),
                          .first_key = window > 0 ? std::max(0, token + 1 - window) : 0, .num_keys = token + 1,
                          .head_dim = shape.kv.head_dim, .scale = scale(), .out = row.data()});
      out.insert(out.end(), row.begin(), row.end());
    }
    return out;
  }
};

AttentionShape shape_of(KvFormat format, int32_t kv_heads, int32_t group, int32_t dim) {
  return {.kv = {.format = format, .num_kv_heads = kv_heads, .head_dim = dim}, .num_heads = kv_heads * group};
}

using Case = std::tuple<Isa, KvFormat>;
class Attention : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Versions, Attention,
                         ::testing::Combine(::testing::ValuesIn(available_isas().begin(), available_isas().end()),
                                            ::testing::Values(KvFormat::kBf16, KvFormat::kQ8, KvFormat::kF32)),
                         [](const auto& test) {
                           return std::string(isa_name(std::get<0>(test.param))) + "_" + std::string(kv_format_name(std::get<1>(test.param)));
                         });

TEST(KvStore, HoldsWhatItWasGiven) {
  Rng rng(5);
  for (const KvFormat format : {KvFormat::kBf16, KvFormat::kQ8, KvFormat::kF32}) {
    for (const int32_t dim : {2, 16, 48, 64}) {
      const KvShape shape{.format = format, .num_kv_heads = 1, .head_dim = dim};
      EXPECT_EQ(shape.head_block_bytes() % 64, 0);
      std::vector<std::byte> block(static_cast<size_t>(shape.head_block_bytes()), std::byte{0xff});
      std::vector<float> k(static_cast<size_t>(32 * dim)), v(k.size()), k2(k.size()), v2(k.size());
      for (float& x : k) x = static_cast<float>(rng.uniform() - 0.5);
      for (float& x : v) x = static_cast<float>(rng.uniform() - 0.5);
      for (int32_t t = 0; t < 32; ++t) kv_store(shape, k.data() + t * dim, v.data() + t * dim, t, block.data());
      for (int32_t t = 0; t < 32; ++t) ref::kv_load(shape, block.data(), t, k2.data() + t * dim, v2.data() + t * dim);
      const double bound = format == KvFormat::kF32 ? 0 : format == KvFormat::kBf16 ? 0x1p-9 : 0.5 / 254 + 1e-6;
      for (size_t i = 0; i < k.size(); ++i) {
        EXPECT_NEAR(k[i], k2[i], bound);
        EXPECT_NEAR(v[i], v2[i], bound);
      }
    }
  }
}

TEST_P(Attention, MatchesTheDefinition) {
  const auto [isa, format] = GetParam();
  // Queries and weights rounded to bf16 (8 bits): errors of 2^-9 relative to the scores' and values' norms, which average out.
  const double bound = attention_query_format(format, isa) == QueryFormat::kBf16 ? 1.5e-2 : 4e-6;
  for (const auto& [kv_heads, group, dim, tokens] : std::vector<std::array<int32_t, 4>>{
           {1, 1, 16, 70}, {2, 2, 32, 40}, {1, 3, 48, 40}, {2, 7, 64, 70}, {1, 14, 96, 35}, {1, 5, 128, 600}, {1, 2, 256, 33}, {1, 3, 80, 1100}}) {
    Sequence s(shape_of(format, kv_heads, group, dim), tokens, 7);
    for (int32_t t = 0; t < tokens; ++t) s.store_token(t);
    for (const int32_t window : {0, 20, 600}) {
      const auto out = s.run(isa, 0, tokens, window, 1, 1);
      const size_t ld = out.size() / static_cast<size_t>(tokens);
      const int32_t step = tokens > 100 ? 37 : 1;
      for (int32_t t = 0; t < tokens; t += step) {
        const auto expected = s.expected(t, window);
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(out[static_cast<size_t>(t) * ld + i], expected[i], bound) << "dim " << dim << " token " << t << " at " << i;
        }
      }
    }
  }
}

// Token by token while the cache grows, in chunks, and with any number of threads: the same bits.
TEST_P(Attention, EveryCutGivesTheSameBits) {
  const auto [isa, format] = GetParam();
  Rng rng(11);
  for (const auto& [kv_heads, group, dim, window] : std::vector<std::array<int32_t, 4>>{{1, 3, 64, 0}, {2, 7, 16, 0}, {1, 4, 32, 100}}) {
    const int32_t tokens = 1300;
    Sequence whole(shape_of(format, kv_heads, group, dim), tokens, 13), grown(whole.shape, tokens, 13);
    for (int32_t t = 0; t < tokens; ++t) whole.store_token(t);
    const auto expected = whole.run(isa, 0, tokens, window, 2, 2);
    const size_t ld = expected.size() / static_cast<size_t>(tokens);
    for (int32_t t = 0; t < tokens;) {
      const int32_t rows = std::min<int32_t>(tokens - t, rng.below(3) == 0 ? 1 : 1 + static_cast<int32_t>(rng.below(90)));
      for (int32_t i = 0; i < rows; ++i) grown.store_token(t + i);
      const auto threads = 1 + static_cast<int32_t>(rng.below(3));
      const auto out = grown.run(isa, t, rows, window, threads, threads + static_cast<int32_t>(rng.below(30)));
      for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], expected[static_cast<size_t>(t) * ld + i]) << "token " << t << " at " << i;
      t += rows;
    }
  }
}

TEST_P(Attention, NanIsNotHidden) {
  const auto [isa, format] = GetParam();
  Sequence s(shape_of(format, 1, 1, 16), 10, 3);
  s.keys[5 * 16] = NAN;
  s.values[5 * 16] = NAN;
  for (int32_t t = 0; t < 10; ++t) s.store_token(t);
  EXPECT_TRUE(std::isnan(s.run(isa, 7, 1, 0, 1, 1)[0]));
}

}  // namespace
}  // namespace deepinfer
