// Real models against transformers in float32: logits and token log-probabilities of eight prompts, perplexity of a prose text, 64
// greedy tokens a prompt, eight sequences in a batch. Skipped where the models were not fetched.
//
// float32 activations must agree to 1e-3. With 8-bit activations no two engines agree; the bounds are 1.5 times the distance that
// llama.cpp, which rounds alike, has from the same reference (perplexity.json records it), and greedy tokens may part where
// the reference itself hesitates: below a margin of 0.6 between its first and second choice. The largest error of a prompt's 32 top
// logits is an extreme that moves with every order of the sums (0.6 to 1.25 among the instruction sets), so it is bounded loosely;
// its mean over the prompts, which moves little (0.28 to 0.46), is bounded by llama.cpp's worst (0.57).
#include "dense_model.h"

namespace deepinfer {
namespace {

struct Mode {
  const char* name;
  Activations activations;
  double logits, mean_logits, logprob_max, perplexity_relative, greedy_margin;
};
constexpr Mode kModes[] = {{"f32", Activations::kF32, 1e-3, 1e-3, 1e-3, 3e-5, 2e-3},
                           {"fast", Activations::kFast, 1.5, 0.57, INFINITY, 0.015, 0.6}};

class RealModel : public ::testing::TestWithParam<std::tuple<const char*, Mode>> {
 protected:
  static constexpr const char* kReference = "hf_float32";

  void SetUp() override {
    const std::string name = std::get<0>(GetParam());
    const std::string path = real_model_path(name + ".gguf");
    if (path.empty()) GTEST_SKIP() << name << ".gguf is not in DEEPINFER_TEST_MODELS or ~/.cache/deepinfer/models";
    folder_ = std::filesystem::path(golden_path(name + "/logits.json")).parent_path().string();  // a part of the folder may be here
    if (!std::filesystem::exists(folder_)) GTEST_SKIP() << folder_ << " is not here";
    const Mode& mode = std::get<1>(GetParam());
    runner_ = std::make_unique<DenseRunner>(path, model::LoadOptions{.activations = mode.activations, .kv_format = {}}, 0, 160, 512, 256);
    ASSERT_TRUE(runner_->ok());
  }
  simdjson::dom::element read(simdjson::dom::parser& parser, const char* file) {
    simdjson::dom::element e;
    EXPECT_EQ(parser.load(folder_ + "/" + file).get(e), simdjson::SUCCESS) << file;
    return e;
  }
  double logprob(const float* logits, TokenId token) const { return logits[token] - log_sum_exp(logits, runner_->vocab()); }

  std::string folder_;
  std::unique_ptr<DenseRunner> runner_;
};

TEST_P(RealModel, PromptsMeetTheReference) {
  const Mode& mode = std::get<1>(GetParam());
  simdjson::dom::parser parser;
  double sum_logit = 0;
  int num_prompts = 0;
  for (const auto prompt : read(parser, "logits.json")["prompts"].get_array()) {
    SCOPED_TRACE(std::string(prompt["name"].get_string().value()));
    const auto ids = token_ids(prompt["ids"]);
    const auto reference = prompt[kReference];
    std::vector<double> logprobs;
    for (const double p : reference["token_logprobs"].get_array()) logprobs.push_back(p);
    double worst_logprob = 0, worst_logit = 0;
    runner_->run(ids, 256, [](int32_t) { return true; }, [&](int32_t row, const float* logits) {
      if (static_cast<size_t>(row) + 1 < ids.size()) {
        worst_logprob = std::fmax(worst_logprob, std::fabs(logprob(logits, ids[static_cast<size_t>(row) + 1]) - logprobs[static_cast<size_t>(row)]));
        return;
      }
      const auto top = token_ids(reference["top_ids"]);
      size_t i = 0;
      for (const double expected : reference["top_logits"].get_array()) {
        worst_logit = std::fmax(worst_logit, std::fabs(logits[top[i++]] - expected));
      }
    });
    EXPECT_LE(worst_logit, mode.logits);
    sum_logit += worst_logit;
    ++num_prompts;
    EXPECT_LE(worst_logprob, mode.logprob_max);
    if (std::getenv("DEEPINFER_TEST_VERBOSE") != nullptr) printf("  %zu tokens: top logits %.2e, logprob %.2e\n", ids.size(), worst_logit, worst_logprob);
  }
  EXPECT_LE(sum_logit / num_prompts, mode.mean_logits);
}

TEST_P(RealModel, PerplexityMeetsTheReference) {
  const Mode& mode = std::get<1>(GetParam());
  simdjson::dom::parser parser;
  const auto golden = read(parser, "perplexity.json");
  const auto ids = token_ids(golden["ids"]);
  std::vector<double> expected;
  for (const double p : golden[kReference]["token_logprobs"].get_array()) expected.push_back(p);
  double sum = 0, sum_difference = 0;
  runner_->run(ids, 256, [&](int32_t row) { return static_cast<size_t>(row) < expected.size(); }, [&](int32_t row, const float* logits) {
    const double p = logprob(logits, ids[static_cast<size_t>(row) + 1]);
    sum -= p;
    sum_difference += std::fabs(p - expected[static_cast<size_t>(row)]);
  });
  const auto n = static_cast<double>(expected.size());
  const double perplexity = std::exp(sum / n), reference = golden[kReference]["perplexity"].get_double();
  EXPECT_NEAR(perplexity, reference, mode.perplexity_relative * reference);
  const double llama_cpp = golden["llama_cpp"]["mean_abs_logprob_difference"].get_double();
  EXPECT_LE(sum_difference / n, mode.activations == Activations::kF32 ? 1e-3 : 1.5 * llama_cpp);
  if (std::getenv("DEEPINFER_TEST_VERBOSE") != nullptr) {
    printf("  perplexity %.5f (reference %.5f), mean logprob difference %.5f (llama.cpp %.5f)\n", perplexity, reference, sum_difference / n, llama_cpp);
  }
}

TEST_P(RealModel, GreedyMeetsTheReference) {
  const Mode& mode = std::get<1>(GetParam());
  struct Prompt {
    std::string name;
    int32_t sequence;
    std::vector<TokenId> expected;
    std::vector<double> margin;
    size_t done = 0;
    TokenId next = 0;
    bool parted = false;
  };
  simdjson::dom::parser parser, greedy_parser;
  const auto logits_json = read(parser, "logits.json");
  std::vector<Prompt> prompts;
  const auto vocab = runner_->vocab();
  const auto take = [&](Prompt& p, const float* logits) {
    const auto best = static_cast<TokenId>(std::max_element(logits, logits + vocab) - logits);
    const TokenId expected = p.expected[p.done];
    if (best != expected) {
      EXPECT_LE(p.margin[p.done], mode.greedy_margin) << p.name << " token " << p.done << " is " << best << ", not " << expected;
      p.parted = true;
    }
    p.next = best;
    ++p.done;
  };
  size_t index = 0;
  for (const auto golden : read(greedy_parser, "greedy.json")["prompts"].get_array()) {
    const auto prompt = logits_json["prompts"].at(index++);
    ASSERT_EQ(prompt["name"].get_string().value(), golden["name"].get_string().value());
    Prompt p{.name = std::string(prompt["name"].get_string().value()), .sequence = runner_->add_sequence(), .expected = token_ids(golden[kReference]["ids"]), .margin = {}};
    for (const double m : golden[kReference]["margin"].get_array()) p.margin.push_back(m);
    const auto ids = token_ids(prompt["ids"]);
    for (size_t begin = 0; begin < ids.size(); begin += 512) {
      const size_t end = std::min(ids.size(), begin + 512);
      DenseRunner::Chunk c{.sequence = p.sequence, .tokens = {ids.begin() + static_cast<ptrdiff_t>(begin), ids.begin() + static_cast<ptrdiff_t>(end)}, .want = {}};
      if (end == ids.size()) c.want = {static_cast<int32_t>(end - begin) - 1};
      const auto logits = runner_->step({c});
      if (end == ids.size()) take(p, logits.data());
    }
    prompts.push_back(std::move(p));
  }
  for (;;) {
    std::vector<DenseRunner::Chunk> chunks;
    std::vector<Prompt*> running;
    for (Prompt& p : prompts) {
      if (p.parted || p.done == p.expected.size()) continue;
      chunks.push_back({.sequence = p.sequence, .tokens = {p.next}, .want = {0}});
      running.push_back(&p);
    }
    if (chunks.empty()) break;
    const auto logits = runner_->step(chunks);
    for (size_t i = 0; i < running.size(); ++i) take(*running[i], logits.data() + static_cast<int64_t>(i) * vocab);
  }
  if (std::getenv("DEEPINFER_TEST_VERBOSE") != nullptr) {
    for (const Prompt& p : prompts) printf("  %s: %zu tokens%s\n", p.name.c_str(), p.done, p.parted ? ", then parted" : "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealModel,
                         ::testing::Combine(::testing::Values("smollm2-135m-instruct-q4_1", "qwen2.5-coder-0.5b-instruct-q4_k_m"),
                                            ::testing::ValuesIn(kModes)),
                         [](const auto& test) {
                           return std::string(std::string_view(std::get<0>(test.param)).substr(0, 3)) + "_" + std::get<1>(test.param).name;
                         });

}  // namespace
}  // namespace deepinfer
