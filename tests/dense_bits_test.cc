// Same input, same bits: logits of a row do not depend on the batch, the chunking, the threads, the blocks or what was in them.
#include "dense_model.h"

namespace deepinfer {
namespace {

struct Mode {
  const char* name;
  Activations activations;
  KvFormat kv;
};
constexpr Mode kModes[] = {{"f32", Activations::kF32, KvFormat::kF32},
                           {"fast", Activations::kFast, KvFormat::kBf16},
                           {"fast_q8", Activations::kFast, KvFormat::kQ8}};

class DenseBits : public ::testing::TestWithParam<std::tuple<const char*, Isa, Mode>> {};

std::vector<std::vector<TokenId>> random_prompts(Rng& rng, int64_t vocab) {
  std::vector<std::vector<TokenId>> prompts;
  for (const int32_t n : {1, 31, 70, 33, 620, 128}) {
    prompts.emplace_back();
    for (int32_t i = 0; i < n; ++i) prompts.back().push_back(static_cast<TokenId>(rng.below(static_cast<uint64_t>(vocab))));
  }
  return prompts;
}

TEST_P(DenseBits, AnyScheduleGivesTheSameLogits) {
  const auto [file, isa, mode] = GetParam();
  const model::LoadOptions options{.activations = mode.activations, .kv_format = mode.kv, .isa = isa};
  const std::string path = golden_path(file);
  Rng rng(17);
  // The reference: each prompt alone, in one chunk where it fits, by one thread.
  DenseRunner alone(path, options, 1, 64, 640, 640);
  ASSERT_TRUE(alone.ok());
  const int64_t vocab = alone.vocab();
  const auto prompts = random_prompts(rng, vocab);
  std::vector<std::vector<float>> expected;
  for (const auto& ids : prompts) {
    expected.emplace_back();
    alone.run(ids, 640, [](int32_t) { return true; }, [&](int32_t, const float* logits) {
      expected.back().insert(expected.back().end(), logits, logits + vocab);
    });
  }
  for (int round = 0; round < 6; ++round) {
    const int threads = 1 + round % 3;
    DenseRunner mixed(path, options, threads, 64, 256, 256, 100 + static_cast<uint64_t>(round));
    ASSERT_TRUE(mixed.ok());
    for (size_t i = 0; i < prompts.size(); ++i) mixed.add_sequence();
    for (;;) {
      std::vector<DenseRunner::Chunk> chunks;
      std::vector<std::pair<size_t, int32_t>> wanted;  // prompt, row
      int32_t budget = rng.below(2) == 0 ? 6 : 256;
      const size_t first = rng.below(prompts.size());
      for (size_t k = 0; k < prompts.size() && budget > 0; ++k) {
        const size_t i = (first + k) % prompts.size();
        const int32_t done = mixed.length(static_cast<int32_t>(i)), left = static_cast<int32_t>(prompts[i].size()) - done;
        if (left == 0 || rng.below(4) == 0) continue;
        const int32_t n = std::min({left, budget, rng.below(2) == 0 ? 1 : 1 + static_cast<int32_t>(rng.below(150))});
        DenseRunner::Chunk c{.sequence = static_cast<int32_t>(i), .tokens = {prompts[i].begin() + done, prompts[i].begin() + done + n}, .want = {}};
        const uint64_t share = rng.below(3);  // none, some or all rows
        for (int32_t r = 0; r < n; ++r) {
          if (share == 0 || (share == 1 && rng.below(3) != 0)) continue;
          c.want.push_back(r);
          wanted.emplace_back(i, done + r);
        }
        budget -= n;
        chunks.push_back(std::move(c));
      }
      bool all_done = true;
      for (size_t i = 0; i < prompts.size(); ++i) all_done = all_done && mixed.length(static_cast<int32_t>(i)) == static_cast<int32_t>(prompts[i].size());
      if (all_done) break;
      if (chunks.empty()) continue;
      const auto logits = mixed.step(chunks);
      for (size_t w = 0; w < wanted.size(); ++w) {
        const float* e = expected[wanted[w].first].data() + wanted[w].second * vocab;
        ASSERT_TRUE(std::equal(e, e + vocab, logits.begin() + static_cast<int64_t>(w) * vocab))
            << "prompt " << wanted[w].first << " row " << wanted[w].second << " threads " << threads;
      }
      // Now and then a sequence loses its blocks and starts again in blocks that others have used.
      if (rng.below(8) == 0) mixed.drop_sequence(static_cast<int32_t>(rng.below(prompts.size())));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DenseBits,
                         ::testing::Combine(::testing::Values("tiny-qwen2/tiny-qwen2-Q5_0.gguf", "tiny-qwen3/bf16", "tiny-llama-k256/tiny-llama-k256-MIX.gguf"),
                                            ::testing::ValuesIn(available_isas().begin(), available_isas().end()), ::testing::ValuesIn(kModes)),
                         [](const auto& test) {
                           std::string name = std::string(std::get<0>(test.param)).substr(0, std::string_view(std::get<0>(test.param)).find('/')) + "_" +
                                              std::string(isa_name(std::get<1>(test.param))) + "_" + std::get<2>(test.param).name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace deepinfer
