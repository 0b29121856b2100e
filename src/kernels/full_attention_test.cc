#include "kernels/full_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"

namespace deepinfer {
namespace {

struct Problem {
  explicit Problem(int64_t rows, int32_t heads, int32_t dim)
      : ld(3 * int64_t{heads} * dim + 5), numbers(static_cast<size_t>(rows * ld)), out(static_cast<size_t>(rows * heads * dim)) {
    Rng rng(static_cast<uint64_t>(rows * 131 + heads * 17 + dim));
    for (bf16& x : numbers) x = to_bf16(static_cast<float>(rng.uniform() * 4 - 2));
    params = {.queries = numbers.data(), .keys = numbers.data() + heads * dim, .values = numbers.data() + 2 * heads * dim, .ld = ld, .num_rows = rows,
              .num_heads = heads, .head_dim = dim, .scale = 1 / std::sqrt(static_cast<float>(dim)), .out = out.data(), .ld_out = int64_t{heads} * dim};
  }
  void run(Isa isa, Workers& workers, int64_t tiles_at_once = 1000) {
    FullAttentionScratch scratch(params.num_rows, params.num_heads, params.head_dim, workers.size());
    workers.run([&](Team& team) { lay_out_keys(params, scratch, team); });
    const int64_t tiles = full_attention_tiles(params);
    for (int64_t tile = 0; tile < tiles; tile += tiles_at_once)
      workers.run([&](Team& team) { full_attention(params, scratch, tile, std::min(tile + tiles_at_once, tiles), isa, team); });
  }
  int64_t ld;
  std::vector<bf16> numbers, out;
  FullAttentionParams params;
};

TEST(FullAttention, MeetsTheDefinitionOnEveryInstructionSet) {
  const auto workers = Workers::create(2, false);
  for (const auto& [rows, heads, dim] : {std::tuple{1, 1, 4}, {8, 2, 32}, {37, 3, 64}, {130, 2, 20}}) {
    Problem problem(rows, heads, dim);
    std::vector<double> expected(problem.out.size());
    ref::full_attention(problem.params, expected.data());
    for (const Isa isa : available_isas()) {
      SCOPED_TRACE(std::string(isa_name(isa)) + ", rows " + std::to_string(rows));
      problem.run(isa, *workers);
      for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(to_f32(problem.out[i]), expected[i], 0.008) << i;  // an ulp of bf16 below 2
    }
  }
}

TEST(FullAttention, BitsDependOnNeitherThreadsNorPieces) {
  const auto one = Workers::create(1, false), three = Workers::create(3, false);
  Problem problem(53, 3, 32);
  for (const Isa isa : available_isas()) {
    problem.run(isa, *one);
    const std::vector<bf16> expected = problem.out;
    std::fill(problem.out.begin(), problem.out.end(), bf16{0});
    problem.run(isa, *three, 5);
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(problem.out[i].bits, expected[i].bits) << isa_name(isa) << " " << i;
  }
}

}  // namespace
}  // namespace deepinfer
