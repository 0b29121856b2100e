// What share of each tenant's prompts was found in cache, usually and of late: a client that begins to write its prompts differently (a
// time stamp in the system prompt, tools in another order) costs several times as much from then on, and answers as before. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/thread_annotations.h"

namespace deepinfer::api {

// Averages fade with requests and weigh tokens. A fall is told once, until the rate is near the usual one again.
class HitRates {
 public:
  static constexpr double kUsualRequests = 500, kLateRequests = 30;  // after which a request counts e times less
  static constexpr int64_t kLeastRequests = 100;                     // of a tenant, before anything is usual
  static constexpr double kLeastUsual = 0.2, kFallen = 0.5, kRisen = 0.75;  // share of tokens; shares of the usual rate

  struct Fall {
    double usual = 0, late = 0;  // 0 to 1
  };
  // Counts a request; tenants are those of the API keys. The result: that the rate has fallen.
  std::optional<Fall> add(const std::string& tenant, int64_t prompt_tokens, int64_t cached_tokens);

 private:
  struct Average {
    double prompt = 0, cached = 0;
    void add(double requests, double prompt_tokens, double cached_tokens);
    double rate() const { return prompt > 0 ? cached / prompt : 0; }
  };
  struct Tenant {
    Average usual, late;
    int64_t num_requests = 0;
    bool fallen = false;
  };
  Mutex mu_;
  std::map<std::string, Tenant> tenants_ GUARDED_BY(mu_);
};

}  // namespace deepinfer::api
