#include "api/metrics.h"

#include <algorithm>
#include <prometheus/text_serializer.h>

namespace deepinfer::api {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets& seconds_to_first() {
  static const Buckets buckets = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640};
  return buckets;
}
const Buckets& seconds_per_token() {
  static const Buckets buckets = {0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5};
  return buckets;
}
const Buckets& seconds_in_all() {
  static const Buckets buckets = {0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920};
  return buckets;
}
const Buckets& token_counts() {
  static const Buckets buckets = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
  return buckets;
}

struct Scraped {
  const char* name;
  const char* help;
  MetricType type;
  double value;
};

MetricFamily family(const Scraped& scraped, const std::string& model) {
  MetricFamily out{.name = scraped.name, .help = scraped.help, .type = scraped.type, .metric = {}};
  prometheus::ClientMetric metric;
  metric.label = {{"model_name", model}};
  (scraped.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = scraped.value;
  out.metric.push_back(std::move(metric));
  return out;
}

MetricFamily by_label(const char* name, const char* help, const char* label, const std::string& model, const std::vector<std::pair<std::string_view, uint64_t>>& values) {
  MetricFamily out{.name = name, .help = help, .type = MetricType::Counter, .metric = {}};
  for (const auto& [key, value] : values) {
    prometheus::ClientMetric metric;
    metric.label = {{"model_name", model}, {label, std::string(key)}};
    metric.counter.value = static_cast<double>(value);
    out.metric.push_back(std::move(metric));
  }
  return out;
}

void append_cache_index(const CacheStats::Index& c, const std::string& model, std::vector<MetricFamily>& families) {
  const auto d = [](uint64_t value) { return static_cast<double>(value); };
  const Scraped scraped[] = {
      {"deepinfer_cache_index_off", "1 while the shared index is not asked because it failed.", MetricType::Gauge, c.off ? 1.0 : 0.0},
      {"deepinfer_cache_index_lookups_total", "Requests for which the shared index was asked.", MetricType::Counter, d(c.lookups)},
      {"deepinfer_cache_index_found_blocks_total", "Blocks that it knew and we did not.", MetricType::Counter, d(c.found_blocks)},
      {"deepinfer_cache_index_wrong_places_total", "Answers of it that were no place of a block.", MetricType::Counter, d(c.wrong_places)},
      {"deepinfer_cache_index_told_blocks_total", "Blocks that it was told of.", MetricType::Counter, d(c.told_blocks)},
      {"deepinfer_cache_index_dropped_blocks_total", "Blocks that it could not be told of.", MetricType::Counter, d(c.dropped_blocks)},
      {"deepinfer_cache_index_errors_total", "Times it did not answer, or refused.", MetricType::Counter, d(c.errors)},
  };
  for (const Scraped& one : scraped) families.push_back(family(one, model));
}

std::vector<Scraped> cache_rows(const CacheStats& c) {
  const auto d = [](uint64_t value) { return static_cast<double>(value); };
  return {
      {"deepinfer_cache_blocks", "Blocks in the store.", MetricType::Gauge, d(c.num_blocks)},
      {"deepinfer_cache_segments", "Segments of the store.", MetricType::Gauge, d(c.num_segments)},
      {"deepinfer_cache_used_bytes", "What the store takes on its medium.", MetricType::Gauge, d(c.used_bytes)},
      {"deepinfer_cache_budget_bytes", "What it may take.", MetricType::Gauge, d(c.budget_bytes)},
      {"deepinfer_cache_index_bytes", "Memory of the store's index.", MetricType::Gauge, d(c.index_bytes)},
      {"deepinfer_cache_backlog_bytes", "Blocks that wait to be written.", MetricType::Gauge, d(c.backlog_bytes)},
      {"deepinfer_cache_read_only", "1 while the store does not write because of errors.", MetricType::Gauge, c.read_only ? 1.0 : 0.0},
      {"deepinfer_cache_reads_off", "1 while all its reads hang.", MetricType::Gauge, c.reads_off ? 1.0 : 0.0},
      {"deepinfer_cache_read_bytes_total", "Read from the store.", MetricType::Counter, d(c.read_bytes)},
      {"deepinfer_cache_written_bytes_total", "Written to it.", MetricType::Counter, d(c.written_bytes)},
      {"deepinfer_cache_written_blocks_total", "Blocks written.", MetricType::Counter, d(c.written_blocks)},
      {"deepinfer_cache_dropped_blocks_total", "Blocks that were not written: backlog full, no space, errors.", MetricType::Counter, d(c.dropped_blocks)},
      {"deepinfer_cache_evicted_blocks_total", "Blocks that went to keep to the budget.", MetricType::Counter, d(c.evicted_blocks)},
      {"deepinfer_cache_copied_blocks_total", "Hot blocks saved from segments that went.", MetricType::Counter, d(c.copied_blocks)},
      {"deepinfer_cache_expired_segments_total", "Segments that went for their age.", MetricType::Counter, d(c.expired_segments)},
      {"deepinfer_cache_vanished_segments_total", "Segments that somebody else removed.", MetricType::Counter, d(c.vanished_segments)},
      {"deepinfer_cache_rejected_segments_total", "Files that are damaged, foreign or of a newer version.", MetricType::Counter, d(c.rejected_segments)},
      {"deepinfer_cache_write_errors_total", "Writes that failed.", MetricType::Counter, d(c.write_errors)},
      {"deepinfer_cache_clock_jumps_total", "Jumps of the wall clock.", MetricType::Counter, d(c.clock_jumps)},
      {"deepinfer_cache_fetches_total", "Chains of blocks asked for.", MetricType::Counter, d(c.num_fetches)},
      {"deepinfer_cache_fetch_seconds_total", "Time from asking to the last block, summed.", MetricType::Counter, c.fetch_seconds},
  };
}

// One of each family a store.
void append_store(const CacheStats& c, const char* store, const std::string& model, std::vector<MetricFamily>& families) {
  std::vector<MetricFamily> own;
  for (const Scraped& one : cache_rows(c)) own.push_back(family(one, model));
  own.push_back(by_label("deepinfer_cache_hit_blocks_total", "Blocks fetched and verified, by tier.", "tier", model, {{"disk", c.hit_blocks_disk}, {"shared", c.hit_blocks_shared}}));
  std::vector<std::pair<std::string_view, uint64_t>> causes;
  for (size_t i = 0; i < kCacheMissNames.size(); ++i) causes.emplace_back(kCacheMissNames[i], c.missed_blocks[i]);
  own.push_back(by_label("deepinfer_cache_missed_blocks_total", "Blocks that had to be had elsewhere or computed after all, by cause.", "cause", model, causes));
  for (MetricFamily& one : own) {
    for (prometheus::ClientMetric& metric : one.metric) metric.label.push_back({"store", store});
    const auto same = std::find_if(families.begin(), families.end(), [&](const MetricFamily& f) { return f.name == one.name; });
    if (same == families.end()) {
      families.push_back(std::move(one));
    } else {
      same->metric.insert(same->metric.end(), one.metric.begin(), one.metric.end());
    }
  }
}

void append_cache(const InferenceStats& stats, const std::string& model, std::vector<MetricFamily>& families) {
  append_store(stats.cache, "dir", model, families);
  if (stats.shared_cache.present) append_store(stats.shared_cache, "shared", model, families);
  const CacheStats::Index& index = stats.shared_cache.present ? stats.shared_cache.index : stats.cache.index;
  if (index.present) append_cache_index(index, model, families);
}

}  // namespace

Metrics::Metrics(const std::string& model)
    : model_(model),
      responses_(BuildCounter().Name("deepinfer_http_responses_total").Help("HTTP answers by endpoint and status.").Register(registry_)),
      requests_(BuildCounter().Name("deepinfer_requests_total").Help("Generating requests by how they ended.").Labels({{"model_name", model}}).Register(registry_)),
      hit_rate_falls_(BuildCounter().Name("deepinfer_tenant_hit_rate_falls_total").Help("Times a tenant's prompts began to be found in cache half as much as usual; the log names it.")
                          .Register(registry_).Add({{"model_name", model}})),
      connections_(BuildGauge().Name("deepinfer_http_connections").Help("Open client connections.").Register(registry_).Add({})),
      ttft_(BuildHistogram().Name("deepinfer_time_to_first_token_seconds").Help("From the arrival of a request to its first token.")
                .Register(registry_).Add({{"model_name", model}}, seconds_to_first())),
      tpot_(BuildHistogram().Name("deepinfer_time_per_output_token_seconds").Help("Between two tokens of a choice.")
                .Register(registry_).Add({{"model_name", model}}, seconds_per_token())),
      e2e_(BuildHistogram().Name("deepinfer_e2e_request_latency_seconds").Help("From the arrival of a request to the end of its answer.")
               .Register(registry_).Add({{"model_name", model}}, seconds_in_all())),
      prompt_tokens_(BuildHistogram().Name("deepinfer_request_prompt_tokens").Help("Prompt tokens of a request.")
                         .Register(registry_).Add({{"model_name", model}}, token_counts())),
      completion_tokens_(BuildHistogram().Name("deepinfer_request_generation_tokens").Help("Sampled tokens of a request, all choices.")
                             .Register(registry_).Add({{"model_name", model}}, token_counts())) {}

void Metrics::response_sent(std::string_view endpoint, int status) {
  responses_.Add({{"endpoint", std::string(endpoint)}, {"code", std::to_string(status)}}).Increment();
}

void Metrics::request_ended(std::string_view endpoint, std::string_view outcome) {
  requests_.Add({{"endpoint", std::string(endpoint)}, {"outcome", std::string(outcome)}}).Increment();
}

void Metrics::answered(double e2e_seconds, const Usage& usage) {
  e2e_.Observe(e2e_seconds);
  prompt_tokens_.Observe(usage.prompt_tokens);
  completion_tokens_.Observe(usage.completion_tokens);
}

std::string Metrics::text(const InferenceStats& stats) const {
  const double blocks = std::max(1, stats.num_blocks_total);
  const auto counted = [](uint64_t value) { return static_cast<double>(value); };
  const Scraped scraped[] = {
      {"deepinfer_num_requests_running", "Requests that take part in steps.", MetricType::Gauge, double(stats.num_running)},
      {"deepinfer_num_requests_waiting", "Requests that wait for their first step.", MetricType::Gauge, double(stats.num_waiting)},
      {"deepinfer_queue_seconds_estimate", "How long a request that came now would wait.", MetricType::Gauge, stats.estimated_queue_seconds},
      {"deepinfer_kv_cache_usage_ratio", "Share of KV blocks in use, 0 to 1.", MetricType::Gauge, stats.num_blocks_in_use / blocks},
      {"deepinfer_kv_blocks", "KV blocks there are.", MetricType::Gauge, double(stats.num_blocks_total)},
      {"deepinfer_kv_blocks_in_use", "KV blocks held by running requests.", MetricType::Gauge, double(stats.num_blocks_in_use)},
      {"deepinfer_kv_blocks_cached", "KV blocks kept for prefix hits.", MetricType::Gauge, double(stats.num_blocks_cached)},
      {"deepinfer_kv_block_tokens", "Tokens of a KV block.", MetricType::Gauge, double(stats.block_tokens)},
      {"deepinfer_engine_requests_total", "Requests that the engine accepted.", MetricType::Counter, counted(stats.requests_total)},
      {"deepinfer_engine_requests_finished_total", "Requests that ended with an answer.", MetricType::Counter, counted(stats.requests_finished_total)},
      {"deepinfer_engine_requests_cancelled_total", "Requests that were cancelled.", MetricType::Counter, counted(stats.requests_cancelled_total)},
      {"deepinfer_engine_requests_failed_total", "Requests that a fault ended.", MetricType::Counter, counted(stats.requests_failed_total)},
      {"deepinfer_prompt_tokens_total", "Prompt tokens, cached ones included.", MetricType::Counter, counted(stats.prompt_tokens_total)},
      {"deepinfer_prefix_cache_hit_tokens_total", "Prompt tokens found in cache.", MetricType::Counter, counted(stats.prefix_hit_tokens_total)},
      {"deepinfer_generation_tokens_total", "Sampled tokens.", MetricType::Counter, counted(stats.generation_tokens_total)},
      {"deepinfer_num_preemptions_total", "Times a request lost its blocks and was computed again.", MetricType::Counter, counted(stats.preemptions_total)},
      {"deepinfer_engine_steps_total", "Forward passes.", MetricType::Counter, counted(stats.steps_total)},
      {"deepinfer_images_encoded_total", "Pictures that the model's vision side read.", MetricType::Counter, counted(stats.images_encoded_total)},
      {"deepinfer_images_reused_total", "Pictures for which that was still in memory.", MetricType::Counter, counted(stats.images_reused_total)},
  };
  std::vector<MetricFamily> families;
  for (const Scraped& one : scraped) families.push_back(family(one, model_));
  if (stats.cache.present) append_cache(stats, model_, families);
  for (MetricFamily& one : registry_.Collect()) families.push_back(std::move(one));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace deepinfer::api
