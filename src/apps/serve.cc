// deepinfer serve: a model behind HTTP until a signal ends it. SIGTERM or SIGINT drains (running answers finish, up to
// --drain-timeout); a second one ends at once. The main thread waits for that; all else has threads of its own.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <map>
#include <unistd.h>

#include "api/server.h"
#include "apps/commands.h"
#include "apps/served_model.h"
#include "apps/signals.h"
#include "base/units.h"

namespace deepinfer::apps {
namespace {

struct ServeFlags {
  ModelFlags model;
  EngineFlags engine;
  std::string host = "127.0.0.1", api_key_file, tls_cert, tls_key, log = "auto";
  std::vector<std::string> cors_origins, image_hosts, model_aliases;
  int32_t port = 8080, max_connections = 1024;
  std::optional<uint64_t> max_body;
  int64_t drain_timeout_ns = 30'000'000'000, response_retention_ns = 30 * 86'400'000'000'000;
  std::string response_store, state_key_file, thinking_sampling = "model";
  std::vector<std::string> tenant_retention;
  bool log_prompts = false;

  void add_to(Flags& flags) {
    model.add_to(flags);
    flags.text("--host", host, "ADDRESS", "address to listen on; 0.0.0.0 opens it to the network");
    flags.number("-p,--port", port, 0, 65535, "PORT", "0 takes any free one");
    engine.add_to(flags);
    flags.list("--model-alias", model_aliases, "NAME", "other names for it; repeatable; claude-* is all that begin so");
    flags.choice("--thinking-sampling", thinking_sampling, {"model", "request"},
                 "DeepSeek: whose temperature and top_p hold while it thinks");
    flags.number("--max-connections", max_connections, 1, 1 << 20, "N", "open connections");
    flags.size("--max-body", max_body, "largest request", "32MiB");
    flags.text("--api-key-file", api_key_file, "FILE", "one KEY or TENANT:KEY a line; without it everybody is let in");
    flags.list("--tenant-retention", tenant_retention, "TENANT=CLASS", "class of a tenant's requests that name none; repeatable");
    flags.text("--tls-cert", tls_cert, "FILE", "certificate chain, PEM");
    flags.text("--tls-key", tls_key, "FILE", "its key, PEM");
    flags.text("--response-store", response_store, "FILE", "keeps the answers of /v1/responses there (SQLite); without it none is kept");
    flags.duration("--response-retention", response_retention_ns, "how long they are kept", "30d");
    flags.text("--state-key-file", state_key_file, "FILE", "secret that seals reasoning which clients carry; without it a restart forgets");
    flags.list("--cors-origin", cors_origins, "ORIGIN", "web pages that may call; repeatable; * is all");
    flags.list("--allow-image-hosts", image_hosts, "HOST,...", "servers, HOST or HOST:PORT, whose images requests may name by URL [none]")->delimiter(',');
    flags.duration("--drain-timeout", drain_timeout_ns, "how long running answers may take after SIGTERM", "30s");
    flags.choice("--log", log, {"auto", "json", "human", "off"}, "a line a request on stderr; auto is human on a terminal");
    flags.toggle("--log-prompts", log_prompts, "puts the bodies of requests into the log");
  }
};

api::RequestLog request_log(const ServeFlags& flags) {
  if (flags.log == "off") return {};
  api::RequestLog log = api::log_to_fd(STDERR_FILENO);
  if (flags.log != "auto") log.human = flags.log == "human";
  log.with_bodies = flags.log_prompts;
  return log;
}

// Names of tenants as in the API key file; 'default' is the tenant of keys without one, as for `cache purge`.
Result<std::map<std::string, std::string>> parse_tenant_retention(const ServeFlags& flags, const api::ApiKeys& keys) {
  std::map<std::string, std::string> out;
  DI_TRY(const std::vector<kv::RetentionClass> classes, parse_retention(flags.engine.cache.retention));
  for (const std::string& item : flags.tenant_retention) {
    const size_t equals = item.rfind('=');
    if (equals == 0 || equals == std::string::npos) return Error{Code::kInvalidArgument, fmt::format("--tenant-retention: '{}' is not TENANT=CLASS", item)};
    const std::string tenant = item.substr(0, equals), name = item.substr(equals + 1);
    const bool known = std::any_of(classes.begin(), classes.end(), [&](const kv::RetentionClass& c) { return c.name == name; });
    if (!known) return Error{Code::kInvalidArgument, fmt::format("--tenant-retention: '{}' is no class of --retention", name)};
    if (!keys.has_tenant(api::tenant_id(tenant))) return Error{Code::kInvalidArgument, fmt::format("--tenant-retention: no key of --api-key-file is of tenant '{}'", tenant)};
    out[api::tenant_id(tenant)] = name;
  }
  return out;
}

// The whole file but its last line end; empty without a file.
Result<std::string> read_secret(const std::string& path) {
  constexpr size_t kLeast = 16;
  if (path.empty()) return std::string();
  std::ifstream in(path, std::ios::binary);
  std::string secret(std::istreambuf_iterator<char>(in), {});
  if (!in) return Error{Code::kIo, fmt::format("cannot read {}: {}", path, std::strerror(errno))};
  if (secret.ends_with('\n')) secret.pop_back();
  if (secret.size() < kLeast) return Error{Code::kInvalidArgument, fmt::format("{} holds less than {} bytes, which is no secret", path, kLeast)};
  return secret;
}

Result<api::ServerOptions> server_options(const ServeFlags& flags) {
  api::ServerOptions options;
  options.address = flags.host;
  options.port = static_cast<uint16_t>(flags.port);
  options.model_aliases = flags.model_aliases;
  options.force_thinking_sampling = flags.thinking_sampling == "model";
  options.max_connections = flags.max_connections;
  options.max_queued_requests = flags.engine.max_queued;
  if (flags.max_body) options.max_body_bytes = *flags.max_body;
  options.drain_timeout = std::chrono::milliseconds(flags.drain_timeout_ns / 1'000'000);
  if (!flags.api_key_file.empty()) {
    DI_TRY(options.keys, api::ApiKeys::load(flags.api_key_file));
  }
  DI_TRY(options.tenant_retention, parse_tenant_retention(flags, options.keys));
  if (!flags.response_store.empty()) {
    options.response_store = api::ResponseStoreOptions{.path = flags.response_store,
                                                       .retention = std::chrono::seconds(flags.response_retention_ns / 1'000'000'000)};
  }
  DI_TRY(options.state_secret, read_secret(flags.state_key_file));
  options.tls_cert = flags.tls_cert;
  options.tls_key = flags.tls_key;
  options.cors_origins = flags.cors_origins;
  options.image_fetch.hosts = flags.image_hosts;
  options.log = request_log(flags);
  return options;
}

void set_sampling_defaults(const engine::ModelText& text, recipe::SamplingDefaults& defaults) {
  if (text.temperature) defaults.temperature = *text.temperature;
  if (text.top_p) defaults.top_p = *text.top_p;
  if (text.min_p) defaults.min_p = *text.min_p;
  if (text.top_k) defaults.top_k = *text.top_k;
  if (text.repetition_penalty) defaults.repetition_penalty = *text.repetition_penalty;
}

Result<> run_serve(ServeFlags flags) {
  SignalWatch signals;  // first of all, so that every thread inherits the blocked signals
  std::signal(SIGPIPE, SIG_IGN);

  const SteadyClock clock;
  const int64_t begin = clock.now_ns();
  DI_TRY(api::ServerOptions options, server_options(flags));
  DI_TRY(const std::unique_ptr<ServedModel> served, start_model(flags.model, flags.engine));
  set_sampling_defaults(served->text, options.sampling);
  options.dialect = served->renderer.dialect;
  const bool tls = !options.tls_cert.empty();
  DI_TRY(const std::unique_ptr<api::Server> server,
         api::Server::start(std::move(options), {.inference = *served->engine, .tokenizer = *served->text.tokenizer, .renderer = served->renderer.prompts.get()}));

  signals.ready([&server] { server->stop_now(); });
  const ModelCard& card = served->engine->model();
  fmt::print(stderr, "deepinfer: serving {} ({}, context {}, KV {}) on {}://{}:{} after {:.2f} s\n", card.name, card.architecture, card.max_context,
             format_size(served->kv_bytes), tls ? "https" : "http", flags.host.find(':') == std::string::npos ? flags.host : "[" + flags.host + "]",
             server->port(), static_cast<double>(clock.now_ns() - begin) / 1e9);
  signals.wait_for_first();
  fmt::print(stderr, "deepinfer: draining, at most {} s; a second signal ends at once\n", flags.drain_timeout_ns / 1'000'000'000);
  server->drain();
  signals.done();
  return {};
}

}  // namespace

Command add_serve(CLI::App& root) {
  CLI::App* app = root.add_subcommand("serve", "Serves a model over HTTP: the protocols of OpenAI (Chat, Responses, completions) and Anthropic (Messages).");
  app->footer("Example:\n  deepinfer serve model.gguf --port 8080 --kv-memory 8GiB");
  auto flags = std::make_shared<ServeFlags>();
  Flags add(*app);
  flags->add_to(add);
  return {app, [flags] {
            const Result<> done = run_serve(*flags);
            return done ? kExitDone : report(done.error());
          }};
}

}  // namespace deepinfer::apps
