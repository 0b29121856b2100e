#include "api/hit_rates.h"

namespace deepinfer::api {

void HitRates::Average::add(double requests, double prompt_tokens, double cached_tokens) {
  prompt += prompt_tokens - prompt / requests;
  cached += cached_tokens - cached / requests;
}

std::optional<HitRates::Fall> HitRates::add(const std::string& tenant, int64_t prompt_tokens, int64_t cached_tokens) {
  const MutexLock lock(mu_);
  Tenant& t = tenants_[tenant];
  const auto prompt = static_cast<double>(prompt_tokens), cached = static_cast<double>(cached_tokens);
  t.usual.add(kUsualRequests, prompt, cached);
  t.late.add(kLateRequests, prompt, cached);
  t.num_requests += 1;
  const double usual = t.usual.rate(), late = t.late.rate();
  if (t.fallen) {
    t.fallen = late < kRisen * usual;
    return std::nullopt;
  }
  t.fallen = t.num_requests >= kLeastRequests && usual >= kLeastUsual && late < kFallen * usual;
  if (!t.fallen) return std::nullopt;
  return Fall{usual, late};
}

}  // namespace deepinfer::api
