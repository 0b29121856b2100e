// What all connections of a server share. Immutable but for counters, which are atomic.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "api/hit_rates.h"
#include "api/live_responses.h"
#include "api/metrics.h"
#include "api/response_store.h"
#include "api/server.h"
#include "base/clock.h"
#include "base/lru_cache.h"
#include "base/rng.h"
#include "base/seal.h"
#include "base/thread_annotations.h"
#include "recipe/token_cache.h"

namespace deepinfer::api {

// Workers may wait for so many images of other servers at a time. There are as many more of them as that, so that they never all do.
constexpr int32_t kMaxImageFetches = 8;
constexpr uint64_t kImageMemoryBytes = uint64_t{128} << 20;  // of pixels that were read before

struct Service {
  // store: null if no responses are kept.
  Service(ServerOptions options, const ServerParts& parts, uint64_t id_key, std::unique_ptr<ResponseStore> store);

  const ServerOptions options;
  Inference& inference;
  const tokenizer::Tokenizer& tokenizer;
  const recipe::PromptRenderer* const renderer;
  recipe::TokenCache token_cache{tokenizer};  // of texts in prompts
  const SteadyClock clock;
  Metrics metrics;
  HitRates hit_rates;
  const std::unique_ptr<ResponseStore> store;
  const Sealer sealer;
  LiveResponses live;
  boost::asio::thread_pool workers;

  std::atomic<bool> draining = false;
  std::atomic<bool> stopping = false;          // the io threads are gone: workers only clear their queue
  std::atomic<int32_t> num_preparing = 0;      // requests between their head and submit()
  std::atomic<size_t> pending_body_bytes = 0;
  Mutex images_mu;
  LruCache<Digest256, std::shared_ptr<const InputImage>, Digest256Hash> images GUARDED_BY(images_mu){kImageMemoryBytes};  // by tenant and file
  std::atomic<int32_t> num_image_fetches = 0;  // workers that wait for other servers

  const std::string& model_name() const { return options.model_name; }
  bool knows_model(std::string_view name) const;
  // No room for another request. num_own: how many of those in preparation are the caller.
  bool queue_is_full(int32_t num_own) const;

  uint64_t random_u64();
  std::string new_id(std::string_view prefix);  // prefix and 24 hex digits

 private:
  const uint64_t id_key_;
  std::atomic<uint64_t> id_counter_ = 0;
};

int64_t unix_now();

}  // namespace deepinfer::api
