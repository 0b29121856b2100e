// "Same input, same bits" with real forward passes: the tiny models of the golden data under random schedules (engine/schedules.h).
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "dense_model.h"
#include "engine/schedules.h"
#include "kernels/kv_format.h"
#include "model/load.h"

namespace deepinfer::engine {
namespace {

struct Case {
  const char* file;
  Activations activations;
  std::optional<KvFormat> kv_format;
};

class EngineModel : public testing::TestWithParam<Case> {};

TEST_P(EngineModel, SameInputSameBitsUnderRandomSchedules) {
  const std::string path = golden_path(GetParam().file);
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
  const ModelFactory load = [&](Workers& workers) {
    auto loaded = model::load_model(path, {.activations = GetParam().activations, .kv_format = GetParam().kv_format}, workers);
    CHECK(loaded.has_value());
    return std::move(loaded.value().model);
  };
  ScheduleTotals totals;
  for (uint64_t seed = 100; seed < 106; ++seed) {
    check_schedule(load, seed, 8, 150, totals);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(totals.num_hit_tokens, 0u);
  EXPECT_GT(totals.num_preemptions, 0u);
}

INSTANTIATE_TEST_SUITE_P(Dense, EngineModel,
                         testing::Values(Case{"tiny-llama/tiny-llama-Q8_0.gguf", Activations::kFast, std::nullopt},
                                         Case{"tiny-qwen3/tiny-qwen3-Q4_0.gguf", Activations::kFast, std::nullopt},
                                         Case{"tiny-llama-k256/tiny-llama-k256-MIX.gguf", Activations::kFast, KvFormat::kQ8},
                                         Case{"tiny-qwen2/f32", Activations::kF32, std::nullopt}));

}  // namespace
}  // namespace deepinfer::engine
