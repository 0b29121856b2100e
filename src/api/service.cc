#include "api/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/hash.h"

namespace deepinfer::api {
namespace {

ServerOptions completed(ServerOptions options, const ModelCard& card) {
  if (options.model_name.empty()) options.model_name = card.name;
  if (options.system_fingerprint.empty()) {
    const std::string text = fmt::format("{} {} {} {}", card.name, card.architecture, card.vocab_size, card.created_unix_s);
    options.system_fingerprint = "fp_" + blake2b_256(std::as_bytes(std::span(text))).hex().substr(0, 12);
  }
  options.num_io_threads = std::max(1, options.num_io_threads);
  options.num_workers = std::max(1, options.num_workers);
  return options;
}

}  // namespace

Service::Service(ServerOptions given, const ServerParts& parts, uint64_t id_key, std::unique_ptr<ResponseStore> response_store)
    : options(completed(std::move(given), parts.inference.model())),
      inference(parts.inference),
      tokenizer(parts.tokenizer),
      renderer(parts.renderer),
      metrics(options.model_name),
      store(std::move(response_store)),
      sealer(options.state_secret.empty() ? Sealer::with_random_key() : Sealer::from_secret(options.state_secret)),
      workers(static_cast<size_t>(options.num_workers + (options.image_fetch.hosts.empty() ? 0 : kMaxImageFetches))),
      id_key_(id_key) {}

bool Service::knows_model(std::string_view name) const {
  constexpr size_t kLongestName = 128;  // every chunk of an answer repeats it
  const auto means = [name](std::string_view alias) {
    return alias.ends_with('*') ? name.size() <= kLongestName && name.starts_with(alias.substr(0, alias.size() - 1)) : name == alias;
  };
  return name == options.model_name || std::any_of(options.model_aliases.begin(), options.model_aliases.end(), means);
}

bool Service::queue_is_full(int32_t num_own) const {
  return inference.stats().num_waiting + num_preparing.load() - num_own >= options.max_queued_requests;
}

int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

uint64_t Service::random_u64() {
  const auto r = philox(id_key_, id_counter_.fetch_add(1));
  return uint64_t{r[0]} << 32 | r[1];
}

std::string Service::new_id(std::string_view prefix) {
  const auto r = philox(id_key_, id_counter_.fetch_add(1));
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, r[0], r[1], r[2]);
}

}  // namespace deepinfer::api
