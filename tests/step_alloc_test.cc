// After reserve() a step allocates nothing, whatever the batch.
#include "count_allocations.h"
#include "dense_model.h"

namespace deepinfer {
namespace {

struct StepsOf {
  const char* model;
  model::V41MemoryOptions memory{};
};
class Steps : public testing::TestWithParam<StepsOf> {};

TEST_P(Steps, AllocateNothing) {
  const auto workers = Workers::create(2, false);
  auto loaded = model::load_model(DI_SOURCE_DIR "/tests/golden/" + std::string(GetParam().model), {.memory = GetParam().memory}, *workers);
  ASSERT_TRUE(loaded) << loaded.error().message;
  model::Model& m = *loaded->model;
  m.reserve({.max_rows = 128, .max_sequences = 8, .max_logit_rows = 8, .max_context = 2048}, *workers);
  constexpr int32_t kBlocksEach = 20;
  const int64_t block_bytes = m.kv_layout().block_bytes, state_bytes = m.kv_layout().state_bytes;
  std::vector<std::byte> arena(static_cast<size_t>(8 * (kBlocksEach * block_bytes + state_bytes)) + 64);
  std::vector<model::BlockId> table(8 * kBlocksEach);
  std::iota(table.begin(), table.end(), 0);
  std::vector<float> logits(static_cast<size_t>(8 * m.info().vocab_size));
  std::vector<TokenId> tokens(128, 5);
  std::vector<model::SequenceRows> rows(8);
  std::vector<int32_t> logit_rows(8);
  std::byte* base = arena.data() + (64 - reinterpret_cast<uintptr_t>(arena.data()) % 64) % 64;
  num_allocations = 0;
  int32_t start = 0;
  for (const int32_t rows_each : {16, 1, 16, 5, 1, 16, 1}) {  // prefill and decode, the first step like the others
    for (const int32_t sequences : {8, 1, 3}) {
      for (int32_t s = 0; s < sequences; ++s) {
        const auto i = static_cast<size_t>(s);
        rows[i] = {.first_row = s * rows_each, .num_rows = rows_each, .start = start, .block_table = std::span(table).subspan(i * kBlocksEach, kBlocksEach)};
        rows[i].state = base + 8 * kBlocksEach * block_bytes + s * state_bytes;
        rows[i].previous = std::span(tokens).first(static_cast<size_t>(start));
        rows[i].decoder_start = start + rows_each - 1;
        logit_rows[i] = s * rows_each + rows_each - 1;
      }
      m.forward({.tokens = std::span(tokens).first(static_cast<size_t>(sequences * rows_each)),
                 .sequences = std::span(rows).first(static_cast<size_t>(sequences)),
                 .logit_rows = std::span(logit_rows).first(static_cast<size_t>(sequences))}, base, logits.data(), *workers).value();
    }
    start += rows_each;
  }
  EXPECT_EQ(num_allocations.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Steps, testing::Values(StepsOf{"dense/tiny-qwen2/tiny-qwen2-Q8_0.gguf"}, StepsOf{"v41-tiny"}, StepsOf{"v41-tiny", {.expert_bytes = 200 << 10}}));

}  // namespace
}  // namespace deepinfer
