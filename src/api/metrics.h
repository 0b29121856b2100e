// What /metrics says: counters and histograms of this server, and the engine's own numbers read at the time of the scrape.
// Thread-safe. Names follow the habits of the field, with the prefix deepinfer_.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <string>
#include <string_view>

#include "core/inference.h"

namespace deepinfer::api {

class Metrics {
 public:
  explicit Metrics(const std::string& model);

  void response_sent(std::string_view endpoint, int status);
  // How a generating request ended: stop, length, error, cancelled, refused.
  void request_ended(std::string_view endpoint, std::string_view outcome);
  void first_token(double seconds) { ttft_.Observe(seconds); }
  void next_token(double seconds) { tpot_.Observe(seconds); }
  void answered(double e2e_seconds, const Usage& usage);
  void hit_rate_fell() { hit_rate_falls_.Increment(); }
  void connections(int64_t count) { connections_.Set(static_cast<double>(count)); }

  // The text format 0.0.4.
  std::string text(const InferenceStats& stats) const;

 private:
  std::string model_;
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& responses_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Counter& hit_rate_falls_;
  prometheus::Gauge& connections_;
  prometheus::Histogram& ttft_;
  prometheus::Histogram& tpot_;
  prometheus::Histogram& e2e_;
  prometheus::Histogram& prompt_tokens_;
  prometheus::Histogram& completion_tokens_;
};

}  // namespace deepinfer::api
