// The tiny models, in every file they come in, with every instruction set, against independent implementations. golden.json says
// who computed what; the tolerances were measured between those implementations (float32: 5e-5, and 1e-3 far past the original
// context, where one of them computes RoPE angles in float32) and on llama.cpp's 8-bit activations.
#include <fstream>

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

struct Tolerance {
  double logits, long_logits, mean_logprob;
};
Tolerance tolerance_of(const Mode& mode) {
  if (mode.activations == Activations::kF32) return {5e-5, 1e-3, 5e-5};
  return {0.6, 0.6, 0.1};
}

struct Case {
  std::string model;
  Isa isa;
  Mode mode;
};

class TinyModels : public ::testing::TestWithParam<std::tuple<const char*, Isa, Mode>> {
 protected:
  void SetUp() override {
    folder_ = golden_path(std::get<0>(GetParam()));
    ASSERT_EQ(parser_.load(folder_ + "/golden.json").get(golden_), simdjson::SUCCESS);
    std::ifstream data(folder_ + "/golden.f32", std::ios::binary);
    data_.assign(std::istreambuf_iterator<char>(data), {});
  }

  std::vector<TokenId> prompt_ids(std::string_view name) {
    for (const auto prompt : golden_["prompts"].get_array()) {
      if (prompt["name"].get_string().value() == name) return token_ids(prompt["ids"]);
    }
    ADD_FAILURE() << name;
    return {};
  }

  // One weight file against one run of golden.json.
  void check(const std::string& path, simdjson::dom::element run) {
    SCOPED_TRACE(path);
    const auto [name, isa, mode] = GetParam();
    DenseRunner runner(path, {.activations = mode.activations, .kv_format = mode.kv, .isa = isa}, 2, 90);
    ASSERT_TRUE(runner.ok());
    for (const auto prompt : run["prompts"].get_array()) check_prompt(runner, prompt, tolerance_of(mode));
  }

  void check_prompt(DenseRunner& runner, simdjson::dom::element prompt, const Tolerance& tolerance) {
    const std::string name(prompt["name"].get_string().value());
    SCOPED_TRACE(name);
    const auto ids = prompt_ids(name);
    const auto rows = token_ids(prompt["rows"]);
    std::vector<double> logprobs;
    if (prompt["token_logprobs"].error() == simdjson::SUCCESS && name != "long") {
      for (const double p : prompt["token_logprobs"].get_array()) logprobs.push_back(p);
    }
    const auto* expected = reinterpret_cast<const float*>(data_.data() + prompt["offset"].get_uint64().value());
    const int64_t vocab = runner.vocab();
    ASSERT_EQ(prompt["floats"].get_int64().value(), static_cast<int64_t>(rows.size()) * vocab);
    double worst = 0, sum_logprob = 0;
    const auto wanted = [&](int32_t row) { return static_cast<size_t>(row) < logprobs.size() || std::binary_search(rows.begin(), rows.end(), row); };
    runner.run(ids, 200, wanted, [&](int32_t row, const float* logits) {
      const auto it = std::lower_bound(rows.begin(), rows.end(), row);
      if (it != rows.end() && *it == row) {
        const float* e = expected + (it - rows.begin()) * vocab;
        for (int64_t i = 0; i < vocab; ++i) worst = std::fmax(worst, std::isfinite(logits[i]) ? std::fabs(logits[i] - e[i]) : INFINITY);
      }
      if (static_cast<size_t>(row) < logprobs.size()) {
        const double logprob = logits[ids[static_cast<size_t>(row) + 1]] - log_sum_exp(logits, vocab);
        sum_logprob += std::fabs(logprob - logprobs[static_cast<size_t>(row)]);
      }
    });
    EXPECT_LE(worst, name == "long" ? tolerance.long_logits : tolerance.logits);
    RecordProperty("worst_" + name, std::to_string(worst));
    if (std::getenv("DEEPINFER_TEST_VERBOSE") != nullptr) {
      printf("  %s: logits %.2e, mean logprob %.2e\n", name.c_str(), worst, logprobs.empty() ? 0 : sum_logprob / static_cast<double>(logprobs.size()));
    }
    if (!logprobs.empty()) {
      EXPECT_LE(sum_logprob / static_cast<double>(logprobs.size()), tolerance.mean_logprob);
    }
  }

  std::string folder_;
  simdjson::dom::parser parser_;
  simdjson::dom::element golden_;
  std::vector<char> data_;
};

TEST_P(TinyModels, MeetGolden) {
  for (const auto run : golden_["runs"].get_array()) {
    check(folder_ + "/" + std::string(run["file"].get_string().value()), run);
    simdjson::dom::array same;
    if (run["same_weights"].get(same) == simdjson::SUCCESS) {
      for (const std::string_view file : same) check(folder_ + "/" + std::string(file), run);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TinyModels,
                         ::testing::Combine(::testing::Values("tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-llama-k256"),
                                            ::testing::ValuesIn(available_isas().begin(), available_isas().end()), ::testing::ValuesIn(kModes)),
                         [](const auto& test) {
                           std::string name = std::string(std::get<0>(test.param)) + "_" + std::string(isa_name(std::get<1>(test.param))) + "_" +
                                              std::get<2>(test.param).name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace deepinfer
