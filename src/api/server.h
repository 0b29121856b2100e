// The HTTP server: the public face of one Inference. Owns its io threads (which sleep in the kernel while nothing happens), a few
// workers that parse, render and tokenise so that no stream waits for somebody's long prompt, and every open connection. Speaks to
// nothing below core/inference.h.
//
// Threads: start() and drain() belong to one owner; stop_now() and the getters may be called from any thread. Each connection lives
// on one io thread from accept to close, so its state needs no lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/auth.h"
#include "api/image_fetch.h"
#include "api/request_log.h"
#include "api/response_store.h"
#include "base/result.h"
#include "core/inference.h"
#include "recipe/generation_options.h"
#include "recipe/prompt.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::api {

struct ServerOptions {
  using Ms = std::chrono::milliseconds;

  std::string address = "127.0.0.1";
  uint16_t port = 8080;  // 0: any free one; Server::port() tells which
  int32_t num_io_threads = 1;
  int32_t num_workers = 2;

  size_t max_body_bytes = 32u << 20;
  size_t max_header_bytes = 16u << 10;
  size_t max_pending_body_bytes = 256u << 20;  // of all requests whose bodies are being read or parsed
  int32_t max_connections = 1024;
  int32_t max_queued_requests = 256;           // waiting for their first step; beyond: 429
  int32_t max_images = 64;                     // of a request; the engine bounds what one of them may be
  size_t max_buffered_events = 4096;           // of a stream whose client does not read

  Ms header_timeout{10'000};   // from the first byte of a request to the end of its head; also for TLS handshakes
  Ms body_timeout{60'000};     // from there to the end of its body
  Ms idle_timeout{75'000};     // between two requests
  Ms write_timeout{30'000};    // for 64 KiB that the client does not take
  Ms keep_alive_interval{15'000};  // silence after which a stream says that it lives
  Ms header_delay{10'000};     // a stream's head is held back until its first token, at most this long: faults before keep their status
  bool early_headers = false;  // … or sent as soon as the request is queued
  Ms drain_timeout{30'000};

  ApiKeys keys;
  std::map<std::string, std::string> tenant_retention;  // Request::tenant -> class of its requests that name none
  std::vector<std::string> cors_origins;  // empty: no cross-origin access; "*": from everywhere
  std::string tls_cert, tls_key;          // PEM files; both or neither

  ImageFetchOptions image_fetch;          // without hosts images come inside of requests only; the time is for all images of a request

  std::string model_name;                 // empty: the model card's
  std::vector<std::string> model_aliases;  // other names of it; one that ends in * stands for all that begin so
  std::string system_fingerprint;         // empty: made from the model card
  recipe::SamplingDefaults sampling;      // for fields that a request leaves out
  recipe::Dialect dialect = recipe::Dialect::kTemplate;  // what the renderer speaks
  bool force_thinking_sampling = true;    // recipe/sampling_rules.h
  std::optional<bool> completions_add_bos;  // unset: as the tokenizer says

  std::optional<ResponseStoreOptions> response_store;  // unset: no responses are kept, and none can be gone on from by id
  std::string state_secret;               // seals what clients carry (encrypted reasoning); empty: a random one, which a restart forgets

  RequestLog log;
};

// What the server stands on; all of it outlives the server. renderer may be null (a model without a chat template).
struct ServerParts {
  Inference& inference;
  const tokenizer::Tokenizer& tokenizer;
  const recipe::PromptRenderer* renderer = nullptr;
};

class Server {
 public:
  // Listens and serves when this returns. Errors: kIo (the address is taken), kInvalidArgument (address, certificate, key).
  static Result<std::unique_ptr<Server>> start(ServerOptions options, const ServerParts& parts);
  ~Server();  // stop_now() and drain()

  uint16_t port() const;

  // Stops accepting, lets running requests finish for at most drain_timeout, cancels the rest, and returns when every thread has
  // ended. A second call does nothing.
  void drain();
  // Cuts a drain() in another thread, or the next one, short. Thread-safe.
  void stop_now();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer::api
