// deepinfer bench: the figures of measure.h as a table or as JSON, next to the machine's roof.
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <optional>

#include "apps/commands.h"
#include "apps/default_model.h"
#include "apps/measure.h"
#include "apps/measure_hit.h"
#include "apps/model_flags.h"
#include "apps/version.h"
#include "base/units.h"
#include "engine/engine.h"
#include "engine/loaded_model.h"
#include "io/disk_rate.h"

namespace deepinfer::apps {
namespace {

struct BenchFlags {
  ModelFlags model;
  int32_t rounds = 5, max_num_batched_tokens = 512;
  std::vector<std::string> only;
  bool json = false;
};

struct Report {
  std::string path;
  model::ModelInfo info;
  int num_threads = 0;
  Roof roof;
  std::vector<CaseResult> results;
  std::optional<HitResult> hit;
  std::optional<double> disk_bytes_per_s;  // the disk's own rate, when weights may have to be read from it
};

constexpr const char* kHitCase = "full hit";
constexpr int32_t kHitTokens = 512;

void print_table(const Report& r) {
  fmt::print("{}: {}, {:.1f} M parameters, {} of weights as packed; {} kernels, {} threads\n", r.path, r.info.architecture,
             static_cast<double>(r.info.num_parameters) / 1e6, format_size(r.info.weight_bytes), isa_name(default_isa()), r.num_threads);
  fmt::print("roof: memory {:.1f} GB/s; {:.1f} GB/s over as many bytes as the weights; int8 {:.0f} Gop/s, bf16 {:.0f} Gop/s\n\n",
             r.roof.read_bytes_per_s / 1e9, r.roof.read_model_bytes_per_s / 1e9, r.roof.int8_ops_per_s / 1e9, r.roof.bf16_ops_per_s / 1e9);
  fmt::print("{:<32} {:>12} {:>12} {:>9} {:>9}\n", "case", "tokens/s", "ms/step", "of roof", "spread");
  for (const CaseResult& c : r.results) {
    const double steps = c.what.kind == BenchCase::Kind::kPrefill ? 1 : c.what.num_tokens;
    fmt::print("{:<32} {:>12.1f} {:>12.3f} {:>8.0f}% {:>8.1f}%\n", c.what.name(), c.tokens_per_s, c.median_s * 1e3 / steps, 100 * c.roof_share, 100 * c.spread);
  }
  if (r.disk_bytes_per_s) {
    fmt::print("\ndisk: {:.2f} GB/s alone", *r.disk_bytes_per_s / 1e9);
    for (const CaseResult& c : r.results) fmt::print("; {:.2f} during {}", c.disk_bytes_per_s / 1e9, c.what.name());
    fmt::print("\n");
  }
  if (r.hit)
    fmt::print("\nfirst token of a prompt of {} tokens: {:.2f} ms; the second time, {} of them cached: {:.2f} ms\n", r.hit->prompt_tokens, r.hit->median_cold_s * 1e3,
               r.hit->cached_tokens, r.hit->median_hit_s * 1e3);
}

void print_json(const Report& r) {
  boost::json::array cases;
  for (const CaseResult& c : r.results)
    cases.push_back({{"case", c.what.name()}, {"sequences", c.what.num_sequences}, {"context", c.what.context}, {"tokens", c.what.num_tokens},
                     {"seconds", boost::json::value_from(c.seconds)}, {"median_s", c.median_s}, {"tokens_per_s", c.tokens_per_s},
                     {"roof_share", c.roof_share}, {"spread", c.spread}, {"disk_bytes_per_s", c.disk_bytes_per_s}});
  boost::json::object out{
      {"model", r.path}, {"architecture", r.info.architecture}, {"parameters", r.info.num_parameters}, {"weight_bytes", r.info.weight_bytes},
      {"threads", r.num_threads}, {"isa", std::string(isa_name(default_isa()))}, {"version", std::string(version())},
      {"roof", {{"read_bytes_per_s", r.roof.read_bytes_per_s}, {"read_model_bytes_per_s", r.roof.read_model_bytes_per_s},
                {"int8_ops_per_s", r.roof.int8_ops_per_s}, {"bf16_ops_per_s", r.roof.bf16_ops_per_s}}},
      {"cases", cases}};
  if (r.disk_bytes_per_s) out["disk_bytes_per_s"] = *r.disk_bytes_per_s;
  if (r.hit)
    out["full_hit"] = {{"prompt_tokens", r.hit->prompt_tokens}, {"cached_tokens", r.hit->cached_tokens}, {"cold_s", boost::json::value_from(r.hit->cold_s)},
                       {"hit_s", boost::json::value_from(r.hit->hit_s)}, {"median_cold_s", r.hit->median_cold_s}, {"median_hit_s", r.hit->median_hit_s}};
  std::puts(boost::json::serialize(out).c_str());
}

Result<std::vector<BenchCase>> chosen_cases(const BenchFlags& flags, int32_t max_context, const model::KvLayout& layout) {
  std::vector<BenchCase> cases = standard_cases(max_context, layout);
  if (flags.only.empty()) return cases;
  std::vector<BenchCase> chosen;
  for (const std::string& name : flags.only) {
    if (name == kHitCase) continue;
    const auto found = std::find_if(cases.begin(), cases.end(), [&](const BenchCase& c) { return c.name() == name; });
    if (found == cases.end()) {
      std::string names;
      for (const BenchCase& c : cases) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", c.name());
      names += fmt::format(", '{}'", kHitCase);
      return Error{Code::kInvalidArgument, fmt::format("--only: '{}' is not a case; there are {}", name, names)};
    }
    chosen.push_back(*found);
  }
  return chosen;
}

// The tokenizer has no part in what is measured, so a model that lacks one will do.
Result<std::unique_ptr<model::Model>> load_model(const BenchFlags& flags, const std::string& path, Workers& workers) {
  DI_TRY(engine::OpenModel open, engine::open_model(path, engine::TextNeed::kForWeights));
  DI_TRY(engine::LoadedModel loaded, engine::load_weights(std::move(open), flags.model.weight_options(), workers));
  return std::move(loaded.model);
}

// Through an engine of its own, since a model's workspace is sized once.
Result<HitResult> run_full_hit(const BenchFlags& flags, const std::string& path, Workers& workers) {
  const SteadyClock clock;
  DI_TRY(std::unique_ptr<model::Model> loaded, load_model(flags, path, workers));
  engine::EngineOptions engine_options{.weights_identity = path, .max_num_batched_tokens = flags.max_num_batched_tokens, .max_num_sequences = 1};
  DI_TRY(const std::unique_ptr<engine::Engine> engine, engine::Engine::start(std::move(loaded), workers, clock, std::move(engine_options)));
  return measure_full_hit(*engine, std::min(kHitTokens, engine->model().max_context - 1), flags.rounds, clock);
}

// What the disk under a model gives: of its largest file.
Result<double> disk_rate_under(const std::string& path) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  std::error_code error;
  std::string largest = path;
  uintmax_t size = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    if (entry.is_regular_file(error) && entry.file_size(error) > size) {
      largest = entry.path().string();
      size = entry.file_size(error);
    }
  return io::measure_disk_rate(largest, kBytes);
}

Result<Report> run_bench(const BenchFlags& flags) {
  Report report;
  DI_TRY(report.path, find_model(flags.model.model));
  const std::unique_ptr<Workers> workers = flags.model.start_workers();
  workers->pin_caller();
  DI_TRY(std::unique_ptr<model::Model> loaded, load_model(flags, report.path, *workers));
  report.info = loaded->info();
  report.num_threads = workers->size();
  const int32_t max_context = flags.model.context > 0 ? flags.model.context : report.info.max_context;
  DI_TRY(const std::vector<BenchCase> cases, chosen_cases(flags, max_context, loaded->kv_layout()));
  report.roof = measure_roof(default_isa(), static_cast<int64_t>(report.info.weight_bytes), *workers);
  DI_TRY(report.results, measure(*loaded, cases, {.rounds = flags.rounds, .max_rows = flags.max_num_batched_tokens}, report.roof, *workers));
  if (flags.model.bounds_weights()) {
    DI_TRY(report.disk_bytes_per_s, disk_rate_under(report.path));
  }
  loaded.reset();
  if (flags.only.empty() || std::find(flags.only.begin(), flags.only.end(), kHitCase) != flags.only.end()) {
    DI_TRY(report.hit, run_full_hit(flags, report.path, *workers));
  }
  return report;
}

}  // namespace

Command add_bench(CLI::App& root) {
  CLI::App* app = root.add_subcommand("bench", "Measures prefill, decode and batches of a model next to the machine's own roof.");
  app->footer("Example:\n  deepinfer bench model.gguf --threads 2\n  deepinfer bench model.gguf --only 'prefill 512' --only 'decode of 8' --json");
  auto flags = std::make_shared<BenchFlags>();
  Flags add(*app);
  flags->model.add_to(add);
  add.number("--rounds", flags->rounds, 1, 1000, "N", "how often each case is timed; the median counts");
  add.number("--max-num-batched-tokens", flags->max_num_batched_tokens, 32, 1 << 16, "N", "tokens a step");
  add.list("--only", flags->only, "CASE", "only this case; may be repeated");
  add.toggle("--json", flags->json, "prints JSON");
  return {app, [flags] {
            const Result<Report> report_ = run_bench(*flags);
            if (!report_) return report(report_.error());
            flags->json ? print_json(*report_) : print_table(*report_);
            return kExitDone;
          }};
}

}  // namespace deepinfer::apps
