// deepinfer audit: what caching would save on logs of one's own. Needs no model and no server; writes nothing but the report.
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <numeric>
#include <thread>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/price_file.h"
#include "apps/progress_line.h"
#include "base/units.h"
#include "io/byte_stream.h"
#include "io/mapped_file.h"
#include "recipe/chat_template.h"
#include "recipe/dialect.h"
#include "trace/html_report.h"
#include "trace/report.h"

namespace deepinfer::apps {
namespace {

constexpr size_t kMaxTokenizerBytes = 64 << 20;
constexpr int32_t kTraceBlock = 64;
constexpr int kMaxPaths = 1 << 20;  // a shell may have opened a pattern

struct AuditFlags {
  std::vector<std::string> logs;
  std::string html, capacity, format = "auto", time_field, tenant_field, tokenizer, chat_template, sample = "100%", prices, price, skipped;
  std::optional<uint64_t> memory, max_line, seed;
  float chars_per_token = 0, accelerator_hour = 0, prefill_rate = 0, decode_rate = 0;
  int32_t block_size = 128, workers = 8, threads = 0;
  bool json = false, one_model = false, redact = false, shard = false, merge = false;
};

// As the default model: beside the program, where `make install` puts it, in the source tree whose build folder holds the program.
Result<std::string> find_tokenizer() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* place : {"models/deepseek/tokenizer.json", "../share/deepinfer/models/deepseek/tokenizer.json", "../../models/deepseek/tokenizer.json"}) {
    const std::filesystem::path path = folder / place;
    if (std::filesystem::exists(path, error)) return path.lexically_normal().string();
  }
  return Error{Code::kNotFound, fmt::format("no DeepSeek tokenizer lies beside {}; name one with --tokenizer", folder.string())};
}

struct Rendering {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<recipe::PromptRenderer> renderer;
  std::string name;
};

Result<Rendering> make_rendering(const AuditFlags& flags) {
  Rendering out;
  std::string path = flags.tokenizer;
  if (path.empty()) {
    DI_TRY(path, find_tokenizer());
  }
  DI_TRY(const std::string json, io::read_small_file(path, kMaxTokenizerBytes));
  DI_TRY(out.tokenizer, tokenizer::Tokenizer::from_json(json, "", path));
  out.name = flags.tokenizer.empty() ? "DeepSeek V4" : std::filesystem::path(path).filename().string();
  if (flags.chars_per_token > 0) out.name = fmt::format("an estimate of {} characters a token", flags.chars_per_token);
  if (!flags.chat_template.empty()) {
    DI_TRY(const std::string source, io::read_small_file(flags.chat_template, kMaxTokenizerBytes));
    DI_TRY(out.renderer, recipe::ChatTemplate::create(source, *out.tokenizer));
    return out;
  }
  const recipe::Dialect dialect = recipe::pick_dialect("", *out.tokenizer);
  if (dialect == recipe::Dialect::kTemplate) return Error{Code::kInvalidArgument, fmt::format("{}: not a DeepSeek vocabulary; its chat template is needed too (--chat-template)", path)};
  // A vocabulary alone says nothing of the version between the preview and the released V4; their layouts differ in the effort text only.
  DI_TRY(out.renderer, recipe::make_dialect_renderer(dialect == recipe::Dialect::kV4Preview ? recipe::Dialect::kV4 : dialect, *out.tokenizer));
  return out;
}

Result<double> parse_share(const std::string& text) {
  std::string digits = text;
  const bool percent = !digits.empty() && digits.back() == '%';
  if (percent) digits.pop_back();
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end) / (percent ? 100 : 1);
  if (digits.empty() || *end != '\0' || !(value > 0) || value > 1) return Error{Code::kInvalidArgument, fmt::format("--sample: '{}' is not a share such as 1% or 0.01", text)};
  return value;
}

// Flags that would say nothing beside the others.
Result<> check_flags(const AuditFlags& flags) {
  if (flags.shard && !flags.json) return Error{Code::kInvalidArgument, "--shard adds to the JSON: it needs --json"};
  const std::pair<const char*, bool> of_reading[] = {
      {"--format", flags.format != "auto"}, {"--time-field", !flags.time_field.empty()}, {"--tenant-field", !flags.tenant_field.empty()},
      {"--tokenizer", !flags.tokenizer.empty()}, {"--chat-template", !flags.chat_template.empty()}, {"--chars-per-token", flags.chars_per_token > 0},
      {"--max-line", flags.max_line.has_value()}, {"--one-model", flags.one_model}, {"--sample", flags.sample != "100%"}, {"--seed", flags.seed.has_value()},
      {"--skipped", !flags.skipped.empty()}};
  for (const auto& [name, given] : of_reading) {
    if (flags.merge && given) return Error{Code::kInvalidArgument, fmt::format("{} says how logs are read: with --merge they were read before", name)};
  }
  return {};
}

Result<trace::AuditOptions> audit_options(const AuditFlags& flags) {
  trace::AuditOptions out;
  if (flags.format != "auto") {
    out.parser.format = trace::format_named(flags.format);
    if (!out.parser.format) {
      std::string known;
      for (int i = 0; i < trace::kNumLogFormats; ++i) known += fmt::format(" {}", trace::format_name(static_cast<trace::LogFormat>(i)));
      return Error{Code::kInvalidArgument, fmt::format("--format: '{}' is none of{}", flags.format, known)};
    }
  }
  out.parser.time_field = flags.time_field;
  out.parser.tenant_field = flags.tenant_field;
  out.block_tokens = std::gcd(kTraceBlock, flags.block_size);
  out.memory_bytes = flags.memory.value_or(out.memory_bytes);
  DI_TRY(check_flags(flags));
  if (out.memory_bytes < 64 << 20) return Error{Code::kInvalidArgument, "--memory: less than 64 MiB is not enough"};
  if (flags.max_line) out.source.max_value_bytes = *flags.max_line;
  out.num_threads = flags.threads > 0 ? flags.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  DI_TRY(out.sample_rate, parse_share(flags.sample));
  out.sample_seed = flags.seed.value_or(0);
  out.chars_per_token = flags.chars_per_token;
  out.one_model = flags.one_model;
  out.redact = flags.redact;
  return out;
}

Result<trace::ReportOptions> report_options(const AuditFlags& flags, const trace::PriceTable& prices, const std::string& tokenizer_name) {
  trace::ReportOptions out;
  out.block_tokens = flags.block_size;
  out.num_workers = flags.workers;
  out.tokenizer_name = tokenizer_name;
  out.prices = &prices;
  out.price = flags.price;
  out.shard = flags.shard && flags.json;
  out.redact = flags.redact;
  for (size_t at = 0; at < flags.capacity.size();) {
    const size_t end = std::min(flags.capacity.find(',', at), flags.capacity.size());
    const Result<uint64_t> tokens = parse_size(flags.capacity.substr(at, end - at));
    if (!tokens) return Error{Code::kInvalidArgument, "--capacity: " + tokens.error().message};
    if (*tokens == 0) return Error{Code::kInvalidArgument, "--capacity: a cache of no tokens finds nothing"};
    out.capacities.push_back(*tokens);
    at = end + 1;
  }
  const int given = (flags.accelerator_hour > 0) + (flags.prefill_rate > 0) + (flags.decode_rate > 0);
  if (given == 3) out.hardware = trace::OwnHardware{flags.accelerator_hour, flags.prefill_rate, flags.decode_rate};
  else if (given > 0) return Error{Code::kInvalidArgument, "--accelerator-hour, --prefill-rate and --decode-rate are needed together"};
  return out;
}

Result<> write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return Error{Code::kIo, path + ": cannot be written"};
  return {};
}

Result<> write_skipped(const std::string& path, const trace::InputSummary& input) {
  std::string text;
  for (const trace::SkippedSample& sample : input.samples) {
    text += boost::json::serialize(boost::json::object{{"reason", trace::skip_reason(sample.reason)}, {"file", sample.path}, {"line", sample.line},
                                                       {"beginning", sample.beginning}}) + "\n";
  }
  return write_file(path, text);
}

// Every report of a file: a cluster's tools put those of many shards one behind the other.
Result<> read_reports(const std::string& path, const std::function<Result<>(const boost::json::object&)>& take) {
  const auto broken = [&](const std::string& why) { return Error{Code::kCorruption, fmt::format("{}: not a report{}", path, why)}; };
  DI_TRY(const std::unique_ptr<io::ByteStream> stream, io::ByteStream::open(path));
  boost::json::stream_parser parser;
  std::vector<char> buffer(1 << 20);
  bool inside = false, any = false;
  while (true) {
    DI_TRY(const size_t got, stream->read(buffer));
    if (got == 0) break;
    for (std::string_view bytes(buffer.data(), got); !bytes.empty();) {
      if (!inside) bytes.remove_prefix(std::min(bytes.find_first_not_of(" \t\r\n"), bytes.size()));
      if (bytes.empty()) break;
      boost::system::error_code error;
      bytes.remove_prefix(parser.write_some(bytes.data(), bytes.size(), error));
      if (error) return broken(": " + error.message());
      inside = !parser.done();
      if (inside) continue;
      const boost::json::value value = parser.release();
      parser.reset();
      if (!value.is_object()) return broken("");
      DI_TRY(take(value.get_object()));
      any = true;
    }
  }
  if (inside || !any) return broken(inside ? ": it ends too early" : "");
  return {};
}

Result<> merge(const AuditFlags& flags, trace::Audit& audit, std::string& tokenizer_name) {
  DI_TRY(const std::vector<std::string> paths, trace::find_logs(flags.logs));
  for (const std::string& path : paths) {
    DI_TRY(read_reports(path, [&](const boost::json::object& report) -> Result<> {
      if (Result<> added = trace::add_shard(report, audit); !added) return Error{added.error().code, path + ": " + added.error().message};
      if (!report.at("shard").get_object().contains("trace")) return {};  // nothing that was counted here
      const boost::json::value* tokens = report.if_contains("tokens");
      const boost::json::value* name = tokens != nullptr && tokens->is_object() ? tokens->get_object().if_contains("tokenizer") : nullptr;
      if (name == nullptr || !name->is_string()) return {};
      const std::string here(name->get_string());
      if (!tokenizer_name.empty() && here != tokenizer_name) {
        return Error{Code::kInvalidArgument, fmt::format("{}: counted with {}, the reports before it with {}", path, here, tokenizer_name)};
      }
      tokenizer_name = here;
      return {};
    }));
  }
  return {};
}

Result<> run_audit(const AuditFlags& flags) {
  DI_TRY(const trace::AuditOptions options, audit_options(flags));
  DI_TRY(const trace::PriceTable prices, load_prices(flags.prices));
  Rendering rendering;
  if (!flags.merge) {
    DI_TRY(rendering, make_rendering(flags));
  }
  trace::Audit audit(options, rendering.tokenizer.get(), rendering.renderer.get());
  if (flags.merge) {
    DI_TRY(merge(flags, audit, rendering.name));
  } else {
    DI_TRY(const std::vector<std::string> paths, trace::find_logs(flags.logs));
    ProgressLine progress(ProgressLine::Shown::kOnTerminal);
    audit.read(paths, std::ref(progress));
  }
  if (!flags.skipped.empty()) {
    DI_TRY(write_skipped(flags.skipped, audit.input()));
  }
  DI_TRY(const trace::ReportOptions reporting, report_options(flags, prices, rendering.name));
  DI_TRY(const boost::json::object report, trace::make_report(audit, reporting));
  if (!flags.html.empty() && report.contains("reuse")) {  // a shard without a request has nothing to draw
    boost::json::object shown = report;
    shown.erase("shard");
    DI_TRY(write_file(flags.html, trace::html_report(shown)));
  }
  if (flags.json) fmt::print("{}\n", boost::json::serialize(report));
  else std::fputs(trace::summary_text(report).c_str(), stdout);
  return {};
}

}  // namespace

Command add_audit(CLI::App& root) {
  CLI::App* app = root.add_subcommand("audit", "Says what prefix caching would save on API logs, and what breaks prefixes.");
  app->footer("Example:\n  deepinfer audit ~/.claude/projects\n  deepinfer audit logs/*.jsonl.gz --html report.html --json > report.json");
  auto flags = std::make_shared<AuditFlags>();
  Flags add(*app);
  add.list("LOGS", flags->logs, "FILE", "files, folders, patterns or - for stdin; .gz and .zst too")->required()->expected(1, kMaxPaths);
  add.toggle("--json", flags->json, "prints all figures as JSON instead of the summary");
  add.text("--html", flags->html, "FILE", "writes the report as one HTML file");
  add.text("--format", flags->format, "NAME", "takes only this format, such as chat or langfuse; auto tells each apart");
  add.text("--time-field", flags->time_field, "PATH", "where a line's time stands, such as meta.when");
  add.text("--tenant-field", flags->tenant_field, "PATH", "where the key or user stands whose cache is its own");
  add.text("--tokenizer", flags->tokenizer, "FILE", "a tokenizer.json", "DeepSeek V4's");
  add.text("--chat-template", flags->chat_template, "FILE", "the Jinja template that goes with the tokenizer", "DeepSeek's layout");
  add.real("--chars-per-token", flags->chars_per_token, 0, 100, "estimates tokens instead of counting; 0 counts");
  add.number("--block-size", flags->block_size, 1, 65536, "TOKENS", "block of the cache");
  add.text("--capacity", flags->capacity, "LIST", "sizes of caches in tokens to compare, such as 16M,64M", "powers of four");
  add.number("--workers", flags->workers, 1, 64, "N", "workers with caches of their own, for routing");
  add.toggle("--one-model", flags->one_model, "all models share a cache, as if one served them");
  add.text("--prices", flags->prices, "FILE", "a price table (TOML) beside the built-in one");
  add.text("--price", flags->price, "NAME", "the entry for models that the table does not know");
  add.real("--accelerator-hour", flags->accelerator_hour, 0, 1e6f, "US dollars an hour of own hardware");
  add.real("--prefill-rate", flags->prefill_rate, 0, 1e9f, "its input tokens a second");
  add.real("--decode-rate", flags->decode_rate, 0, 1e9f, "its output tokens a second");
  add.size("--memory", flags->memory, "bound of the memory; beyond it prefixes are sampled", "2GiB");
  add.size("--max-line", flags->max_line, "longer lines are skipped", "64MiB");
  add.number("--threads", flags->threads, 0, 1024, "N", "threads", "all cores");
  add.text("--sample", flags->sample, "SHARE", "share of the prefixes to follow, such as 1%");
  add.seed("--seed", flags->seed, "of the sample", "0");
  add.toggle("--redact", flags->redact, "only digests and lengths of texts in the report");
  add.text("--skipped", flags->skipped, "FILE", "writes samples of skipped lines");
  add.toggle("--shard", flags->shard, "adds to the JSON what --merge needs");
  add.toggle("--merge", flags->merge, "LOGS are reports written with --json --shard; joins them");
  return {app, [flags] {
            const Result<> done = run_audit(*flags);
            return done ? kExitDone : report(done.error());
          }};
}

}  // namespace deepinfer::apps
