// What the bare step of a model costs: prefill of 512 tokens, decode of one sequence at several contexts, decode of several
// sequences together. No scheduler, no sampling. Caches hold arbitrary finite numbers: speed does not depend on them.
//   bench_step MODEL [THREADS=0] [ROUNDS=5] [f32|bf16|q8] [CASE: all whose names begin so]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "bench.h"
#include "kernels/linear.h"
#include "model/load.h"

using namespace deepinfer;

namespace {

using bench::median, bench::seconds;

class StepBench {
 public:
  StepBench(model::Model& m, Workers& workers, int rounds) : model_(m), workers_(workers), rounds_(rounds) {
    const int64_t bytes = kBlocks * m.kv_layout().block_bytes;
    arena_ = static_cast<std::byte*>(std::aligned_alloc(2 << 20, static_cast<size_t>((bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20))));
    std::memset(arena_, 0x3c, static_cast<size_t>(bytes));  // bf16 0.0115
    model_.reserve({.max_rows = 512, .max_sequences = 16, .max_logit_rows = 16, .max_context = 8192}, workers_);
    logits_.resize(16 * static_cast<size_t>(m.info().vocab_size));
    for (int32_t b = 0; b < kBlocks; ++b) table_.push_back(b);
  }
  ~StepBench() { std::free(arena_); }
  StepBench(const StepBench&) = delete;
  StepBench& operator=(const StepBench&) = delete;

  // Median seconds of a step of `sequences` sequences with `rows` new tokens each after `context` others.
  double step(int32_t sequences, int32_t rows, int32_t context, int inner) {
    std::vector<TokenId> tokens;
    std::vector<model::SequenceRows> parts;
    std::vector<int32_t> logit_rows;
    const auto blocks_each = static_cast<size_t>(kBlocks / sequences);
    for (int32_t s = 0; s < sequences; ++s) {
      parts.push_back({.first_row = s * rows, .num_rows = rows, .start = context,
                       .block_table = std::span(table_).subspan(static_cast<size_t>(s) * blocks_each, blocks_each)});
      for (int32_t i = 0; i < rows; ++i) tokens.push_back((s * 7919 + i * 104729) % model_.info().vocab_size);
      logit_rows.push_back(s * rows + rows - 1);
    }
    const model::StepBatch batch{.tokens = tokens, .sequences = parts, .logit_rows = logit_rows};
    std::vector<double> times;
    for (int round = 0; round <= rounds_; ++round) {  // the first warms up
      const double begin = seconds();
      for (int i = 0; i < inner; ++i) model_.forward(batch, arena_, logits_.data(), workers_).value();
      if (round > 0) times.push_back((seconds() - begin) / inner);
    }
    return median(times);
  }

 private:
  static constexpr int32_t kBlocks = 160;  // 5120 tokens
  model::Model& model_;
  Workers& workers_;
  int rounds_;
  std::byte* arena_;
  std::vector<float> logits_;
  std::vector<int32_t> table_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_step MODEL [THREADS=0] [ROUNDS=5] [f32|bf16|q8] [CASE]\n");
    return 2;
  }
  const auto workers = Workers::create(argc > 2 ? std::atoi(argv[2]) : 0);
  workers->pin_caller();
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
  model::LoadOptions options;
  if (argc > 4) {
    const std::string_view format = argv[4];
    if (format == "f32") options.activations = Activations::kF32;
    if (format == "q8") options.kv_format = KvFormat::kQ8;
  }
  const double begin = seconds();
  auto loaded = model::load_model(argv[1], options, *workers);
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return 1;
  }
  model::Model& m = *loaded->model;
  const double megabytes = static_cast<double>(m.info().weight_bytes) / 1e6;
  std::printf("%s: %.1f M parameters, %.1f MB packed, KV %s, isa %s, %d threads, loaded in %.3f s\n", argv[1],
              static_cast<double>(m.info().num_parameters) / 1e6, megabytes, m.kv_layout().format.c_str(), std::string(isa_name(options.isa)).c_str(),
              workers->size(), seconds() - begin);
  StepBench bench(m, *workers, rounds);
  const std::string only = argc > 5 ? argv[5] : "";
  const auto wanted = [&](const std::string& name) { return name.starts_with(only); };
  for (const int32_t context : {0, 4096}) {
    const std::string name = "prefill 512 after " + std::to_string(context);
    if (wanted(name)) std::printf("%s: %.1f tokens/s\n", name.c_str(), 512 / bench.step(1, 512, context, 1));
  }
  for (const int32_t context : {0, 1024, 4096}) {
    const std::string name = "decode at " + std::to_string(context);
    if (!wanted(name)) continue;
    const double t = bench.step(1, 1, context, 8);
    const double kv = static_cast<double>(m.kv_layout().block_bytes) * context / kKvBlockTokens / 1e6;
    std::printf("%s: %.1f tokens/s, %.1f GB/s\n", name.c_str(), 1 / t, (megabytes + kv) / 1e3 / t);
  }
  for (const int32_t n : {1, 2, 4, 8, 16}) {
    const std::string name = "decode of " + std::to_string(n);
    if (wanted(name)) std::printf("%s sequences at 128: %.1f tokens/s\n", name.c_str(), n / bench.step(n, 1, 128, 4));
  }
  return 0;
}
