// deepinfer cache stat, verify, purge: a cache directory from outside, also while servers use it. deepinfer cache warm: documents computed into
// one before anybody asks. Progress goes to stderr: a line that is redrawn on a terminal, plain lines in a pipe.
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <fmt/format.h>

#include "api/auth.h"
#include "apps/cache_disk.h"
#include "apps/commands.h"
#include "apps/generate.h"
#include "apps/progress_line.h"
#include "apps/served_model.h"
#include "base/units.h"
#include "io/mapped_file.h"
#include "kv/store_tools.h"
#include "recipe/encode_request.h"
#include "recipe/json_reader.h"
#include "recipe/protocol.h"

namespace deepinfer::apps {
namespace {

namespace json = boost::json;

std::string age_text(int64_t seconds) {
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86'400);
}

struct DirFlags {
  std::string dir;
  bool json = false, quiet = false;

  void add_to(Flags& flags) {
    flags.text("DIR", dir, "DIR", "the cache directory, or s3://BUCKET/PREFIX")->required();
    flags.toggle("--json", json, "prints JSON");
    flags.toggle("--quiet", quiet, "no progress");
  }
};

constexpr const char* kAgeNames[] = {"under an hour", "1 to 6 hours", "6 to 24 hours", "1 to 3 days", "3 to 7 days", "longer"};
static_assert(std::size(kAgeNames) == std::size(kv::StoreReport::kAges) + 1);

void print_report(const kv::StoreReport& report, int64_t now_s) {
  fmt::print("{} blocks in {} segments, {}\n", report.total.num_blocks, report.total.num_segments, format_size(report.total.bytes));
  if (report.num_rejected > 0) fmt::print("{} files that are damaged, misplaced or newer: {}\n", report.num_rejected, format_size(report.rejected_bytes));
  fmt::print("{} encrypted, {} without a footer (open, or left by a crash), {} past their time\n\n", report.num_encrypted, report.num_unsealed, report.num_expired);
  fmt::print("{:<12} {:<12} {:<10} {:>9} {:>9} {:>11} {:>9} {:>9}\n", "model", "tenant", "class", "segments", "blocks", "bytes", "oldest", "newest");
  for (const auto& [names, group] : report.groups) {
    fmt::print("{:<12} {:<12} {:<10} {:>9} {:>9} {:>11} {:>9} {:>9}\n", names[0].substr(0, 12), names[1].substr(0, 12), names[2], group.num_segments,
               group.num_blocks, format_size(group.bytes), group.num_blocks == 0 ? "" : age_text(now_s - group.oldest_s), group.num_blocks == 0 ? "" : age_text(now_s - group.newest_s));
  }
  fmt::print("\nlast used\n");
  for (size_t i = 0; i < std::size(kAgeNames); ++i) {
    const double share = report.total.bytes == 0 ? 0 : static_cast<double>(report.bytes_by_last_use[i]) / static_cast<double>(report.total.bytes);
    fmt::print("{:<14} {:>11} {}\n", kAgeNames[i], format_size(report.bytes_by_last_use[i]), std::string(static_cast<size_t>(share * 40), '#'));
  }
}

json::object group_json(const kv::StoreGroup& group) {
  json::object out{{"segments", group.num_segments}, {"blocks", group.num_blocks}, {"bytes", group.bytes}};
  if (group.num_blocks > 0) out["oldest_unix_s"] = group.oldest_s, out["newest_unix_s"] = group.newest_s;
  return out;
}

json::object report_json(const kv::StoreReport& report) {
  json::object out = group_json(report.total);
  out["encrypted_segments"] = report.num_encrypted;
  out["unsealed_segments"] = report.num_unsealed;
  out["expired_segments"] = report.num_expired;
  out["rejected_segments"] = report.num_rejected;
  out["rejected_bytes"] = report.rejected_bytes;
  json::array groups;
  for (const auto& [names, group] : report.groups) {
    json::object one = group_json(group);
    one["model"] = names[0];
    one["tenant"] = names[1];
    one["class"] = names[2];
    groups.push_back(std::move(one));
  }
  out["groups"] = std::move(groups);
  json::object ages;
  for (size_t i = 0; i < std::size(kAgeNames); ++i) ages[kAgeNames[i]] = report.bytes_by_last_use[i];
  out["bytes_by_last_use"] = std::move(ages);
  return out;
}

int run_stat(const DirFlags& flags) {
  const Result<std::shared_ptr<io::Disk>> disk = cache_disk(flags.dir);
  if (!disk) return report(disk.error());
  const int64_t now_s = kv::SystemTime().wall_s();
  Result<kv::StoreReport> done = [&] {
    ProgressLine progress(flags.quiet || flags.json ? ProgressLine::Shown::kNever : ProgressLine::Shown::kAlways);
    return kv::report_store(**disk, flags.dir, now_s, std::ref(progress));
  }();
  if (!done) return report(done.error());
  flags.json ? void(std::puts(json::serialize(report_json(*done)).c_str())) : print_report(*done, now_s);
  return kExitDone;
}

struct VerifyFlags : DirFlags {
  std::string key_file;
};

// Damage that was found and moved away is the world's fault, and a script should hear of it.
int run_verify(const VerifyFlags& flags) {
  std::optional<kv::RowCipher> cipher;
  if (!flags.key_file.empty()) {
    Result<kv::RowCipher> loaded = kv::RowCipher::load(flags.key_file);
    if (!loaded) return report(loaded.error());
    cipher.emplace(*loaded);
  }
  const Result<std::shared_ptr<io::Disk>> disk = cache_disk(flags.dir);
  if (!disk) return report(disk.error());
  Result<kv::VerifyReport> done = [&] {
    ProgressLine progress(flags.quiet || flags.json ? ProgressLine::Shown::kNever : ProgressLine::Shown::kAlways);
    return kv::verify_store(**disk, flags.dir, cipher, std::ref(progress));
  }();
  if (!done) return report(done.error());
  if (flags.json) {
    json::object out{{"segments", done->num_segments}, {"skipped", done->num_skipped}, {"blocks", done->num_blocks}, {"bytes", done->bytes},
                     {"bad_blocks", done->num_bad_blocks}, {"unopened_segments", done->num_unopened}, {"quarantined", json::value_from(done->quarantined)},
                     {"unreadable", json::value_from(done->unreadable)}};
    std::puts(json::serialize(out).c_str());
  } else {
    fmt::print("{} blocks in {} segments read, {}; {} segments were known to be good\n", done->num_blocks, done->num_segments, format_size(done->bytes), done->num_skipped);
    if (done->num_unopened > 0) fmt::print("{} segments are encrypted with another key: only their checksums were compared\n", done->num_unopened);
    for (const std::string& message : done->unreadable) fmt::print("cannot be read, left where it is: {}\n", message);
    for (const std::string& path : done->quarantined) fmt::print("bad, moved to {}/quarantine: {}\n", flags.dir, path);
  }
  return done->quarantined.empty() && done->unreadable.empty() ? kExitDone : kExitFailed;
}

struct PurgeFlags : DirFlags {
  std::string tenant, retention_class;
  int64_t older_than_ns = 0;
  bool all = false;
};

int run_purge(const PurgeFlags& flags) {
  if (!flags.all && flags.tenant.empty() && flags.retention_class.empty() && flags.older_than_ns == 0)
    return report(Error{Code::kInvalidArgument, "say what: --tenant, --class, --older-than or --all"});
  const Result<std::shared_ptr<io::Disk>> disk = cache_disk(flags.dir);
  if (!disk) return report(disk.error());
  const Result<kv::StoreFolder> folder = kv::read_store_folder(**disk, flags.dir);
  if (!folder) return report(folder.error());
  kv::PurgeFilter filter{.retention_class = flags.retention_class};
  if (!flags.tenant.empty()) filter.tenant = kv::tenant_folder(folder->secret, api::tenant_id(flags.tenant));
  if (flags.older_than_ns > 0) filter.before_s = kv::SystemTime().wall_s() - flags.older_than_ns / 1'000'000'000;
  const Result<kv::PurgeReport> done = [&] {
    ProgressLine progress(flags.quiet || flags.json ? ProgressLine::Shown::kNever : ProgressLine::Shown::kAlways);
    return kv::purge_store(**disk, flags.dir, filter, std::ref(progress));
  }();
  if (!done) return report(done.error());
  if (flags.json) {
    std::puts(json::serialize(json::object{{"segments", done->num_segments}, {"bytes", done->bytes}}).c_str());
  } else {
    fmt::print("removed {} segments, {}\n", done->num_segments, format_size(done->bytes));
  }
  return kExitDone;
}

struct WarmFlags {
  ModelFlags model;
  EngineFlags engine;
  std::vector<std::string> files;
  std::string as = "text", tenant = "default", retention_class;
  bool json = false, quiet = false;
};

// What a server would make of it: a request of the file's kind.
Result<recipe::ParsedRequest> warm_request(const ServedModel& served, std::string_view as, std::string text) {
  recipe::ParsedRequest request;
  if (as == "text") {
    request.prompt = recipe::TextPrompt{.text = std::move(text)};
    return request;
  }
  json::object body;
  if (as == "system") {
    body["messages"] = {{{"role", "system"}, {"content", text}}, {{"role", "user"}, {"content", "."}}};
  } else {
    DI_TRY(body, recipe::read_json_object(std::move(text)));
  }
  recipe::RequestContext context;
  context.options.vocab_size = served.text.tokenizer->vocab_size();
  context.options.dialect = served.renderer.dialect;
  recipe::Problems problems;
  std::optional<recipe::ParsedRequest> parsed = recipe::parse_request(recipe::Protocol::kChat, body, context, problems);
  if (!parsed) return Error{Code::kInvalidArgument, fmt::format("the request: {}", problems.first().message)};
  return std::move(*parsed);
}

// One document: its tokens go through the model once; an answer of one token is the least that can be asked for.
Result<Usage> warm_document(const ServedModel& served, const WarmFlags& flags, std::string text) {
  DI_TRY(recipe::ParsedRequest parsed, warm_request(served, flags.as, std::move(text)));
  const tokenizer::Tokenizer& tokenizer = *served.text.tokenizer;
  DI_TRY(recipe::EncodedRequest encoded, recipe::encode_request(parsed, {.tokenizer = tokenizer, .renderer = served.renderer.prompts.get(), .text_bos = tokenizer.add_bos()}));
  Request request{.prompt = std::move(encoded.ids), .tenant = api::tenant_id(flags.tenant), .cache_salt = parsed.options.cache_salt,
                  .retention = flags.retention_class.empty() ? parsed.options.retention : flags.retention_class};
  const auto longest = static_cast<size_t>(served.engine->model().max_context - 1);
  if (request.prompt.size() > longest) request.prompt.resize(longest);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 1;
  const auto queue = std::make_shared<EventQueue>();
  const auto num_tokens = static_cast<uint64_t>(request.prompt.size()), step_tokens = static_cast<uint64_t>(flags.engine.max_num_batched_tokens);
  const uint64_t first_step = served.engine->stats().steps_total;
  ProgressLine progress(flags.quiet || flags.json ? ProgressLine::Shown::kNever : ProgressLine::Shown::kAlways, "tokens");
  DI_TRY(served.engine->submit(std::move(request), queue));
  for (;;) {
    const std::optional<TokenEvent> event = queue->pop(200);
    progress(std::min((served.engine->stats().steps_total - first_step) * step_tokens, num_tokens), num_tokens);  // there is nothing else in its steps
    if (!event || !event->finished) continue;
    progress(num_tokens, num_tokens);
    if (*event->finished == FinishReason::kError) return Error{Code::kInternal, event->message};
    return event->usage;
  }
}

Result<> run_warm(const WarmFlags& flags) {
  if (!flags.engine.cache.wanted()) return Error{Code::kInvalidArgument, "cache warm needs --cache-dir"};
  DI_TRY(const std::vector<kv::RetentionClass> classes, parse_retention(flags.engine.cache.retention));
  const bool known = std::any_of(classes.begin(), classes.end(), [&](const kv::RetentionClass& c) { return c.name == flags.retention_class; });
  if (!flags.retention_class.empty() && !known) return Error{Code::kInvalidArgument, fmt::format("--class: '{}' is no class of --retention", flags.retention_class)};
  DI_TRY(const std::unique_ptr<ServedModel> served, start_model(flags.model, flags.engine));
  json::array out;
  for (const std::string& file : flags.files) {
    DI_TRY(std::string text, io::read_small_file(file, size_t{64} << 20));
    const Result<Usage> warmed = warm_document(*served, flags, std::move(text));
    if (!warmed) return Error{warmed.error().code, file + ": " + warmed.error().message};
    const Usage& usage = *warmed;
    served->store->flush();
    if (flags.json) {
      out.push_back(json::object{{"file", file}, {"tokens", usage.prompt_tokens}, {"cached_tokens", usage.cached_tokens}});
    } else {
      fmt::print("{}: {} tokens, {} of them were cached\n", file, usage.prompt_tokens, usage.cached_tokens);
    }
  }
  if (flags.json) std::puts(json::serialize(out).c_str());
  const uint64_t num_dropped = served->store->stats().dropped_blocks + served->store->shared_stats().dropped_blocks;
  if (num_dropped > 0) return Error{Code::kIo, fmt::format("{} blocks could not be written", num_dropped)};
  return {};
}

}  // namespace

Command add_cache_stat(CLI::App& cache) {
  CLI::App* app = cache.add_subcommand("stat", "Says what a cache directory holds: blocks, bytes, ages, by model, tenant and class.");
  app->footer("Example:\n  deepinfer cache stat /var/cache/deepinfer");
  auto flags = std::make_shared<DirFlags>();
  Flags add(*app);
  flags->add_to(add);
  return {app, [flags] { return run_stat(*flags); }};
}

Command add_cache_verify(CLI::App& cache) {
  CLI::App* app = cache.add_subcommand("verify", "Reads every block and moves damaged segments away; goes on where it was stopped.");
  app->footer("Example:\n  deepinfer cache verify /var/cache/deepinfer");
  auto flags = std::make_shared<VerifyFlags>();
  Flags add(*app);
  flags->add_to(add);
  add.text("--cache-key-file", flags->key_file, "FILE", "opens encrypted blocks too", "none");
  return {app, [flags] { return run_verify(*flags); }};
}

Command add_cache_purge(CLI::App& cache) {
  CLI::App* app = cache.add_subcommand("purge", "Removes segments, also while servers run; all conditions that are given must hold.");
  app->footer("Example:\n  deepinfer cache purge /var/cache/deepinfer --tenant acme\n  deepinfer cache purge /var/cache/deepinfer --class agent --older-than 24h");
  auto flags = std::make_shared<PurgeFlags>();
  Flags add(*app);
  flags->add_to(add);
  add.text("--tenant", flags->tenant, "NAME", "of the API key file; 'default' is the tenant of keys without one", "all");
  add.text("--class", flags->retention_class, "CLASS", "retention class", "all");
  add.duration("--older-than", flags->older_than_ns, "neither written nor used since", "any age");
  add.toggle("--all", flags->all, "everything");
  return {app, [flags] { return run_purge(*flags); }};
}

Command add_cache_warm(CLI::App& cache) {
  CLI::App* app = cache.add_subcommand("warm", "Computes documents into a cache directory, so that prompts which begin with them are hits.");
  app->footer(
      "Example:\n  deepinfer cache warm model.gguf handbook.txt --as system --cache-dir /var/cache/deepinfer\n"
      "  deepinfer cache warm model.gguf request.json --as request --tenant acme --cache-dir /var/cache/deepinfer");
  auto flags = std::make_shared<WarmFlags>();
  Flags add(*app);
  flags->model.add_to(add);
  add.list("FILE", flags->files, "FILE", "texts; one longer than the context is cut")->required();
  add.choice("--as", flags->as, {"text", "system", "request"}, "beginnings of plain completions, system messages of chats, or JSON as POSTed to /v1/chat/completions");
  add.text("--tenant", flags->tenant, "NAME", "of the API key file, whose requests will find it");
  add.text("--class", flags->retention_class, "CLASS", "retention class", "the request's, or the first");
  flags->engine.add_to(add);
  add.toggle("--json", flags->json, "prints JSON");
  add.toggle("--quiet", flags->quiet, "no progress");
  return {app, [flags] {
            const Result<> done = run_warm(*flags);
            return done ? kExitDone : report(done.error());
          }};
}

}  // namespace deepinfer::apps
