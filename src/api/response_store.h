// Responses that clients asked to keep, with the input that each was made from, in one SQLite file, for a limited time. A tenant sees its
// own. Any thread: calls take turns under a lock, and wait for the disk, so they belong on workers.
// Format: docs/formats/response-store.md. Lost: keeping them in memory, which a restart forgets; see docs/decisions/response-store.md.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer::api {

struct ResponseStoreOptions {
  std::string path;                          // made if it is not there; ":memory:" keeps nothing on disk
  std::chrono::seconds retention{30 * 86400};
  int64_t max_responses = 100'000;           // beyond: the oldest go
};

struct StoredResponse {
  std::string id, tenant;
  int64_t created_unix_s = 0;
  std::string previous_id;  // empty: none
  std::string response;     // the response object, JSON
  std::string input;        // its own input items, a JSON array
};

class ResponseStore {
 public:
  // Errors: kIo (the file cannot be opened or made), kCorruption (it is no such file, or of a later version).
  static Result<std::unique_ptr<ResponseStore>> open(const ResponseStoreOptions& options);
  ~ResponseStore();

  // now_unix_s: decides what is too old; expired rows are removed in passing, a bounded number a call.
  Result<> put(const StoredResponse& response, int64_t now_unix_s);
  // kNotFound: there is none of this tenant, or it is too old.
  Result<StoredResponse> get(std::string_view id, std::string_view tenant, int64_t now_unix_s);
  Result<> remove(std::string_view id, std::string_view tenant, int64_t now_unix_s);

 private:
  struct Impl;
  explicit ResponseStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer::api
