#include "trace/report.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/value_from.hpp>
#include <cmath>
#include <map>
#include <utility>

#include "base/base64.h"
#include "trace/routing.h"

namespace deepinfer::trace {
namespace json = boost::json;
namespace {

constexpr double kMonthUs = 30.0 * 86400e6;
constexpr double kLeastSpanUs = 600e6;  // below ten minutes nothing is said about a month
constexpr int kTimelineBuckets = 48;
constexpr size_t kMaxBreakers = 30;
// Of a sample, a rate is stated only if its error is no larger than this. A sample of fewer blocks than there are groups, from whose
// differences the error is told, does not know its error either.
constexpr double kMaxRateError = 0.1;
constexpr size_t kMinSampledBlocks = PrefixTree::kNumGroups;

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

std::string digest_name(const std::string& name) { return name.empty() ? name : fmt::format("{:016x}", XXH3_64bits(name.data(), name.size())); }

// Token counts are whole; those of a sample are estimates and rounded.
int64_t whole(double tokens) { return std::llround(tokens); }

json::object unknown_hits() { return {{"hit_tokens", nullptr}, {"hit_rate", nullptr}}; }

// What nobody logged is not 0.
template <class T>
json::value known_if(bool known, const T& value) {
  return known ? json::value(value) : json::value(nullptr);
}

LoggedUsage usage_of(const TracedRequest& r) { return {r.logged_input, r.logged_cached, r.logged_written, r.logged_written_1h, r.output_tokens}; }

// One audit's figures, section by section.
class Report {
 public:
  Report(const Audit& audit, const ReportOptions& options, const RequestTrace& trace) : audit_(audit), options_(options), trace_(trace) {}

  // Of a shard in which no request was found: what it passed over is told to those that join shards.
  json::object make_empty() const { return {{"version", 1}, {"input", input_section()}, {"shard", shard_section()}}; }

  // Of a log that tells lengths only: what is known from those, and null for what is not.
  Result<json::object> make_of_lengths() {
    DI_TRY(check_price());
    knows_reuse_ = false;
    const LengthLog& lengths = audit_.lengths();
    for (const auto& [model, usage] : lengths.by_model()) totals_.push_back({model, usage});
    input_tokens_ = static_cast<double>(lengths.all().input);
    span_us_ = static_cast<double>(lengths.times().last_us() - lengths.times().first_us());
    json::object out;
    out["version"] = 1;
    out["input"] = input_section();
    out["tokens"] = token_section();
    out["reuse"] = json::object{{"block_tokens", nullptr}, {"unlimited", unknown_hits()}, {"by_retention", json::object()}, {"by_capacity", json::array()},
                                {"by_retention_and_capacity", json::array()}, {"distance", json::array()}, {"age", json::array()}};
    out["block_sizes"] = json::array();
    out["per_tenant"] = nullptr;
    out["routing"] = json::object{{"workers", options_.num_workers}, {"policies", json::array()}};
    out["repetition"] = repetition_section();
    out["timeline"] = length_timeline();
    out["money"] = money_section();
    out["breakers"] = nullptr;
    if (options_.shard) out["shard"] = shard_section();
    return out;
  }

  Result<json::object> make() {
    DI_TRY(check());
    order_ = trace_.by_time();
    if (audit_.has_times() && !order_.empty()) span_us_ = static_cast<double>(trace_.requests[order_.back()].time_us - trace_.requests[order_.front()].time_us);
    replay_main();
    for (uint32_t m = 0; m < trace_.models.size(); ++m) totals_.push_back({trace_.models.name(m), {}});
    for (const TracedRequest& r : trace_.requests) totals_[r.model].usage.add(r.input_tokens, usage_of(r));
    json::object out;
    out["version"] = 1;
    out["input"] = input_section();
    out["tokens"] = token_section();
    if (trace_.tree.sampled()) out["sampling"] = sampling_section();
    out["reuse"] = reuse_section();
    out["block_sizes"] = block_size_section();
    out["per_tenant"] = tenant_section();
    out["routing"] = routing_section();
    out["repetition"] = repetition_section();
    out["timeline"] = timeline_section();
    out["money"] = money_section();
    // Hashes of blocks name no edit.
    out["breakers"] = trace_.partial_blocks ? json::value(nullptr) : json::value(breaker_section(kMaxBreakers));
    if (options_.shard) out["shard"] = shard_section();
    return out;
  }

 private:
  struct Priced {
    uint32_t model;  // index into totals_
    const PriceEntry* price;
    double scale;  // the provider's tokens for one of ours
  };

  Result<> check() {
    main_multiple_ = trace_.partial_blocks ? 1 : options_.block_tokens / trace_.block_tokens;
    if (!trace_.partial_blocks && (main_multiple_ < 1 || options_.block_tokens % trace_.block_tokens != 0)) {
      return Error{Code::kInvalidArgument, fmt::format("blocks of {} tokens cannot be told from a trace of blocks of {}", options_.block_tokens, trace_.block_tokens)};
    }
    return check_price();
  }

  Result<> check_price() const {
    if (!options_.price.empty() && (options_.prices == nullptr || options_.prices->named(options_.price) == nullptr)) {
      return Error{Code::kInvalidArgument, fmt::format("no price entry is named '{}'", options_.price)};
    }
    return {};
  }

  int32_t block_tokens(int multiple) const { return multiple * trace_.block_tokens; }

  ReplayOptions replay_options(int multiple, bool with_capacities) const {
    ReplayOptions out{.multiple = static_cast<uint32_t>(multiple)};
    for (const Retention& retention : standard_retentions()) out.retentions_us.push_back(retention.us);
    out.retentions_us.push_back(kForever);
    if (with_capacities) {
      for (const uint64_t tokens : capacity_tokens_) out.capacities.push_back(std::max<uint64_t>(1, tokens / static_cast<uint64_t>(block_tokens(multiple))));
    }
    out.capacities.push_back(kUnlimited);
    return out;
  }

  void replay_main() {
    capacity_tokens_ = options_.capacities;
    std::sort(capacity_tokens_.begin(), capacity_tokens_.end());
    if (capacity_tokens_.empty()) {
      const double distinct = static_cast<double>(trace_.tree.nodes().size()) / trace_.tree.rate() * trace_.block_tokens;
      for (uint64_t tokens = 1 << 14; static_cast<double>(tokens) < distinct && capacity_tokens_.size() < 20; tokens *= 4) capacity_tokens_.push_back(tokens);
    }
    main_options_ = replay_options(main_multiple_, true);
    main_ = replay(trace_, order_, main_options_, scratch_, &hit_of_);
    input_tokens_ = main_.input_tokens;
    knows_reuse_ = told(main_, main_options_, forever(), capacity_tokens_.size());
  }

  bool sample_too_small() const { return trace_.tree.sampled() && trace_.tree.nodes().size() <= kMinSampledBlocks; }

  // Whether the sample, if it is one, knows this cell of a replay.
  bool told(const ReuseCounts& counts, const ReplayOptions& options, size_t retention, size_t capacity) const {
    return !trace_.tree.sampled() || (!sample_too_small() && share(counts.error(retention, capacity, options), counts.input_tokens) <= kMaxRateError);
  }

  size_t forever() const { return standard_retentions().size(); }

  json::object input_section() const {
    const InputSummary& in = audit_.input();
    json::object out;
    out["files"] = in.num_files;
    out["bytes"] = in.num_bytes;
    out["values"] = in.num_values;
    out["requests"] = knows_trace() ? static_cast<int64_t>(trace_.requests.size()) : audit_.lengths().num_requests();
    json::object formats;
    for (int i = 0; i < kNumLogFormats; ++i) {
      if (in.records_by_format[static_cast<size_t>(i)] > 0) formats[format_name(static_cast<LogFormat>(i))] = in.records_by_format[static_cast<size_t>(i)];
    }
    out["by_format"] = std::move(formats);
    json::object skipped;
    for (int i = 0; i < kNumSkips; ++i) {
      if (in.skipped[static_cast<size_t>(i)] > 0) skipped[skip_reason(static_cast<Skip>(i))] = in.skipped[static_cast<size_t>(i)];
    }
    out["skipped"] = std::move(skipped);
    const LengthLog& lengths = audit_.lengths();
    out["incomplete"] = in.num_incomplete;
    out["without_time"] = in.num_without_time;
    out["wrong_clock"] = in.num_wrong_clock;
    out["backward_clock"] = in.num_backward;
    out["unrendered"] = in.num_unrendered;
    const UsageSums of_lengths = lengths.all();
    out["lengths_only"] = json::object{{"requests", of_lengths.num_requests}, {"input_tokens", of_lengths.input},
                                       {"output_tokens", known_if(of_lengths.num_with_output > 0, of_lengths.output)},
                                       {"without_time", lengths.num_without_time()}, {"wrong_clock", lengths.num_wrong_clock()}};
    json::array errors;
    for (const std::string& error : in.errors) errors.push_back(json::string(options_.redact ? digest_name(error) : error));
    out["errors"] = std::move(errors);
    if (knows_trace()) {
      out["tenants"] = num_tenants();
      out["has_times"] = audit_.has_times();
      if (audit_.has_times() && !order_.empty()) {
        out["first_time_ms"] = trace_.requests[order_.front()].time_us / 1000;
        out["last_time_ms"] = trace_.requests[order_.back()].time_us / 1000;
      }
    } else {
      out["tenants"] = nullptr;
      out["has_times"] = !lengths.times().empty();
      if (!lengths.times().empty()) {
        out["first_time_ms"] = lengths.times().first_us() / 1000;
        out["last_time_ms"] = lengths.times().last_us() / 1000;
      }
    }
    out["span_seconds"] = span_us_ / 1e6;
    return out;
  }

  size_t num_tenants() const { return requests_by_tenant().size(); }

  std::map<uint32_t, std::vector<uint32_t>> requests_by_tenant() const {
    std::map<uint32_t, std::vector<uint32_t>> out;
    for (const uint32_t index : order_) out[trace_.requests[index].tenant].push_back(index);
    return out;
  }

  json::object token_section() const {
    UsageSums all;
    for (const ModelTotals& model : totals_) all.append(model.usage);
    const std::string counted_by = !knows_trace() || trace_.partial_blocks ? "counted by the log" : options_.tokenizer_name;
    json::object out{{"tokenizer", counted_by}, {"input", whole(input_tokens_)}, {"output", known_if(all.num_with_output > 0, all.output)},
                     {"in_blocks", known_if(knows_trace(), whole(main_.block_tokens))}, {"distinct", known_if(knows_reuse_, whole(main_.distinct_tokens))}};
    out["logged"] = json::object{{"requests", all.num_with_input}, {"input", known_if(all.num_with_input > 0, all.input)}, {"cached", known_if(all.num_with_cached > 0, all.cached)},
                                 {"hit_rate", known_if(all.num_with_cached > 0, share(static_cast<double>(all.cached), static_cast<double>(all.input)))}};
    json::array models;
    for (uint32_t m = 0; m < totals_.size(); ++m) {
      if (totals_[m].usage.counted <= 0) continue;
      models.push_back(json::object{{"model", totals_[m].name}, {"input", totals_[m].usage.counted},
                                    {"hit_tokens", knows_reuse_ ? json::value(whole(main_.hit_by_model[m][forever()])) : json::value(nullptr)}});
    }
    out["by_model"] = std::move(models);
    return out;
  }

  // A rate with which the sample would tell more: its error falls with the root of its size.
  json::object sampling_section() const {
    json::object out{{"rate", trace_.tree.rate()}, {"seed", trace_.tree.seed()}, {"error", "hit_rate_error is half the width of a 95 % interval"},
                     {"max_error", kMaxRateError}};
    double wanted = 1;
    const double error = share(main_.error(forever(), capacity_tokens_.size(), main_options_), input_tokens_);
    if (!sample_too_small()) wanted = std::min(1.0, trace_.tree.rate() * (error / kMaxRateError) * (error / kMaxRateError));
    out["suggested_rate"] = knows_reuse_ ? json::value(nullptr) : json::value(std::min(1.0, std::ceil(wanted * 100) / 100));
    return out;
  }

  json::object hits(const ReuseCounts& counts, const ReplayOptions& options, size_t retention, size_t capacity) const {
    const double hit = counts.hit(retention, capacity, options), error = share(counts.error(retention, capacity, options), counts.input_tokens);
    json::object out = unknown_hits();
    if (told(counts, options, retention, capacity)) out = {{"hit_tokens", whole(hit)}, {"hit_rate", share(hit, counts.input_tokens)}};
    if (trace_.tree.sampled()) out["hit_rate_error"] = known_if(!sample_too_small(), error);
    return out;
  }

  json::object by_retention(const ReuseCounts& counts, const ReplayOptions& options) const {
    json::object out;
    for (size_t i = 0; i < standard_retentions().size(); ++i) {
      json::object one = hits(counts, options, i, options.capacities.size() - 1);
      one["seconds"] = standard_retentions()[i].us / 1'000'000;
      out[standard_retentions()[i].name] = std::move(one);
    }
    return out;
  }

  json::object reuse_section() const {
    const ReplayOptions& options = main_options_;
    json::object out;
    out["block_tokens"] = block_tokens(main_multiple_);
    out["unlimited"] = hits(main_, options, forever(), capacity_tokens_.size());
    // Without times every request seems to come at once, and no retention can be told from another.
    if (audit_.has_times()) out["by_retention"] = by_retention(main_, options);
    else out["by_retention"] = json::object();
    json::array by_capacity, both;
    for (size_t c = 0; c < capacity_tokens_.size(); ++c) {
      json::object one = hits(main_, options, forever(), c);
      one["capacity_tokens"] = capacity_tokens_[c];
      by_capacity.push_back(std::move(one));
      for (size_t r = 0; audit_.has_times() && r < standard_retentions().size(); ++r) {
        json::object cell = hits(main_, options, r, c);
        cell["retention"] = standard_retentions()[r].name;
        cell["capacity_tokens"] = capacity_tokens_[c];
        both.push_back(std::move(cell));
      }
    }
    out["by_capacity"] = std::move(by_capacity);
    out["by_retention_and_capacity"] = std::move(both);
    out["distance"] = histogram(main_.distance_tokens, "tokens_from");
    out["age"] = audit_.has_times() ? histogram(main_.age_tokens, "ms_from") : json::array();
    return out;
  }

  json::array histogram(const std::vector<double>& buckets, std::string_view name) const {
    json::array out;
    if (!knows_reuse_) return out;
    for (uint32_t b = 0; b < buckets.size(); ++b) {
      if (whole(buckets[b]) > 0) out.push_back(json::object{{name, bucket_floor(b)}, {"hit_tokens", whole(buckets[b])}});
    }
    return out;
  }

  json::array block_size_section() {
    json::array out;
    std::vector<int> multiples{main_multiple_};
    if (!trace_.partial_blocks) {
      for (const int32_t tokens : options_.other_block_tokens) {
        if (tokens % trace_.block_tokens == 0) multiples.push_back(tokens / trace_.block_tokens);
      }
    }
    std::sort(multiples.begin(), multiples.end());
    multiples.erase(std::unique(multiples.begin(), multiples.end()), multiples.end());
    for (const int multiple : multiples) {
      const ReplayOptions options = replay_options(multiple, false);
      const ReuseCounts counts = replay(trace_, order_, options, scratch_);
      json::object one{{"block_tokens", block_tokens(multiple)}, {"unlimited", hits(counts, options, forever(), 0)}};
      if (audit_.has_times()) one["by_retention"] = by_retention(counts, options);
      out.push_back(std::move(one));
    }
    return out;
  }

  // Caches apart: what is lost when no tenant may use another's prefixes.
  json::object tenant_section() {
    const ReplayOptions options = replay_options(main_multiple_, false);
    const auto tenants = requests_by_tenant();
    if (tenants.size() == 1) {
      tenant_hit_ = main_.hit(forever(), capacity_tokens_.size(), main_options_);
    } else {
      ReuseCounts sum;
      for (const auto& [tenant, requests] : tenants) sum.add(replay(trace_, requests, options, scratch_));
      tenant_hit_ = sum.hit(forever(), 0, options);
      json::object out{{"tenants", tenants.size()}, {"unlimited", hits(sum, options, forever(), 0)}};
      if (audit_.has_times()) out["by_retention"] = by_retention(sum, options);
      return out;
    }
    json::object out{{"tenants", tenants.size()}, {"unlimited", hits(main_, main_options_, forever(), capacity_tokens_.size())}};
    if (audit_.has_times()) out["by_retention"] = by_retention(main_, main_options_);
    return out;
  }

  json::object routing_section() {
    json::array policies;
    const ReplayOptions options = replay_options(main_multiple_, true);
    for (const Routing routing : kAllRoutings) {
      const std::vector<uint8_t> workers = assign_workers(trace_, order_, routing, options_.num_workers);
      const ReuseCounts counts = replay_workers(trace_, order_, workers, options_.num_workers, options, scratch_);
      json::object one = hits(counts, options, forever(), capacity_tokens_.size());
      one["policy"] = routing_name(routing);
      json::array by_capacity;
      for (size_t c = 0; c < capacity_tokens_.size(); ++c) {
        json::object cell = hits(counts, options, forever(), c);
        cell["capacity_tokens_of_each"] = capacity_tokens_[c];
        by_capacity.push_back(std::move(cell));
      }
      one["by_capacity"] = std::move(by_capacity);
      if (audit_.has_times()) one["by_retention"] = by_retention(counts, options);
      policies.push_back(std::move(one));
    }
    return {{"workers", options_.num_workers}, {"policies", std::move(policies)}};
  }

  // A block's hash stands for all before it too: the same text behind other text has another one.
  json::object repetition_section() const {
    json::object out{{"prefix_share", nullptr}, {"other_tokens", nullptr}, {"other_share", nullptr}};
    if (knows_reuse_) out["prefix_share"] = share(main_.hit(forever(), capacity_tokens_.size(), main_options_), input_tokens_);
    if (!knows_trace() || trace_.partial_blocks) return out;
    out["other_tokens"] = whole(audit_.repeated_tokens());
    out["other_share"] = share(audit_.repeated_tokens(), input_tokens_);
    return out;
  }

  json::array length_timeline() const {
    json::array out;
    const TimeBuckets& times = audit_.lengths().times();
    if (span_us_ <= 0) return out;
    for (int64_t bucket = times.first_us() / times.width_us(); bucket <= times.last_us() / times.width_us(); ++bucket) {
      const auto tokens = times.tokens().find(bucket);
      out.push_back(json::object{{"time_ms", bucket * times.width_us() / 1000}, {"input_tokens", tokens != times.tokens().end() ? tokens->second : 0}, {"hit_tokens", nullptr}});
    }
    return out;
  }

  json::array timeline_section() const {
    json::array out;
    if (span_us_ <= 0) return out;
    const int64_t first = trace_.requests[order_.front()].time_us;
    std::vector<double> input(kTimelineBuckets, 0), hit(kTimelineBuckets, 0);
    for (size_t at = 0; at < order_.size(); ++at) {
      const TracedRequest& r = trace_.requests[order_[at]];
      const auto bucket = std::min<size_t>(kTimelineBuckets - 1, static_cast<size_t>(static_cast<double>(r.time_us - first) / span_us_ * kTimelineBuckets));
      input[bucket] += static_cast<double>(r.input_tokens);
      hit[bucket] += hit_of_[at];
    }
    for (size_t b = 0; b < kTimelineBuckets; ++b) {
      out.push_back(json::object{{"time_ms", (first + static_cast<int64_t>(span_us_ * static_cast<double>(b) / kTimelineBuckets)) / 1000},
                                 {"input_tokens", whole(input[b])}, {"hit_tokens", known_if(knows_reuse_, whole(std::min(hit[b], input[b])))}});
    }
    return out;
  }

  // --- money

  const PriceEntry* price_of(uint32_t model) const {
    if (options_.prices == nullptr) return nullptr;
    const PriceEntry* entry = options_.prices->find(totals_[model].name);
    return entry != nullptr || options_.price.empty() ? entry : options_.prices->named(options_.price);
  }

  double months() const { return span_us_ >= kLeastSpanUs ? span_us_ / kMonthUs : 0; }

  json::value per_month(double dollars) const { return months() > 0 ? json::value(dollars / months()) : json::value(nullptr); }

  // Costs of a policy over all models that have a price. hit, written: tokens by model, as tokenised here; written ones are kept for
  // write_retention_us.
  double input_cost(const std::vector<double>& hit, const std::vector<double>* written, int64_t write_retention_us = 0) const {
    double out = 0;
    for (const Priced& p : priced_) out += model_cost(p, hit[p.model], written != nullptr ? (*written)[p.model] : 0, write_retention_us);
    return out;
  }

  double model_cost(const Priced& p, double hit, double write, int64_t write_retention_us) const {
    const double input = static_cast<double>(totals_[p.model].usage.counted), read = std::min(hit, input);
    return p.scale * ((input - read - write) * p.price->input + read * p.price->cached + write * p.price->write_price(write_retention_us)) / 1e6;
  }

  bool knows_retention(size_t retention) const {
    return knows_reuse_ && audit_.has_times() && told(main_, main_options_, retention, capacity_tokens_.size());
  }

  std::vector<double> no_hits() const { return std::vector<double>(totals_.size(), 0); }

  std::vector<double> hits_by_model(size_t retention) const {
    std::vector<double> out;
    for (const std::vector<double>& by_retention : main_.hit_by_model) out.push_back(by_retention[retention]);
    return out;
  }

  void find_prices(json::array& unpriced) {
    for (uint32_t m = 0; m < totals_.size(); ++m) {
      const UsageSums& usage = totals_[m].usage;
      if (usage.counted <= 0) continue;
      const PriceEntry* price = price_of(m);
      if (price == nullptr) unpriced.push_back(json::string(totals_[m].name));
      // The provider counts with a tokenizer of its own: policies are priced in its tokens.
      else priced_.push_back({m, price, usage.counted_of_logged > 0 && usage.input > 0 ? static_cast<double>(usage.input) / static_cast<double>(usage.counted_of_logged) : 1});
    }
  }

  // Input that nobody counted for money is new, in the provider's tokens.
  double today_cost() const {
    double out = 0;
    for (const Priced& p : priced_) {
      const UsageSums& usage = totals_[p.model].usage;
      const double uncounted = p.scale * static_cast<double>(usage.counted - usage.counted_of_logged);
      out += ((static_cast<double>(usage.input - usage.cached - usage.written) + uncounted) * p.price->input + static_cast<double>(usage.cached) * p.price->cached +
              static_cast<double>(usage.written - usage.written_1h) * p.price->written + static_cast<double>(usage.written_1h) * p.price->written_1h) / 1e6;
    }
    return out;
  }

  bool knows_output() const {
    return std::any_of(totals_.begin(), totals_.end(), [](const ModelTotals& model) { return model.usage.num_with_output > 0; });
  }

  double output_cost() const {
    double out = 0;
    for (const Priced& p : priced_) out += static_cast<double>(totals_[p.model].usage.output) * p.price->output / 1e6;
    return out;
  }

  json::object policy(std::string_view name, double cost) const {
    return {{"policy", name}, {"input_cost", cost}, {"saved", today_ - cost}, {"saved_share", share(today_ - cost, today_)}, {"saved_per_month", per_month(today_ - cost)}};
  }

  json::object money_section() {
    json::object out;
    json::array unpriced, policies, prices;
    find_prices(unpriced);
    out["unpriced_models"] = std::move(unpriced);
    if (options_.hardware) out["own_hardware"] = hardware_section();
    if (priced_.empty()) return out;
    today_ = today_cost();
    std::map<std::string, const PriceEntry*> used;
    for (const Priced& p : priced_) used[p.price->name] = p.price;
    for (const auto& [name, entry] : used) {
      prices.push_back(json::object{{"name", name}, {"input", entry->input}, {"cached", entry->cached}, {"written", entry->written}, {"written_1h", entry->written_1h},
                                    {"output", entry->output}, {"date", entry->date}, {"source", entry->source}, {"note", entry->note}});
    }
    out["currency"] = "USD";
    out["prices"] = std::move(prices);
    out["input_cost_today"] = today_;
    out["output_cost_today"] = known_if(knows_output(), output_cost());
    out["input_cost_today_per_month"] = per_month(today_);
    policies.push_back(policy("no_cache", input_cost(no_hits(), nullptr)));
    if (!knows_reuse_) {
      out["policies"] = std::move(policies);
      return out;
    }
    for (size_t i = 0; i < forever(); ++i) {
      if (knows_retention(i)) policies.push_back(policy("retention_" + standard_retentions()[i].name, input_cost(hits_by_model(i), nullptr)));
    }
    policies.push_back(policy("retention_unlimited", input_cost(hits_by_model(forever()), nullptr)));
    if (options_.prices != nullptr && audit_.has_times()) {
      std::map<const CacheRule*, ProviderCounts> by_rule;
      for (const CacheRule& rule : options_.prices->rules) {
        const ProviderCounts& counts = by_rule[&rule] = replay_provider(trace_, order_, rule);
        json::object one = policy("rule_" + rule.name, input_cost(counts.read_by_model, rule.breakpoints ? &counts.written_by_model : nullptr, rule.retention_us));
        one["read_tokens"] = whole(sum(counts.read_by_model));
        one["written_tokens"] = whole(sum(counts.written_by_model));
        policies.push_back(std::move(one));
      }
      const auto has_rule = [&](const Priced& p) { return options_.prices->rule(p.price->cache_rule) != nullptr; };
      if (std::any_of(priced_.begin(), priced_.end(), has_rule)) policies.push_back(providers_policy(by_rule));
    }
    out["policies"] = std::move(policies);
    out["best"] = best_section();
    return out;
  }

  // Each model in its own provider's cache; one whose price names no rule finds nothing.
  json::object providers_policy(const std::map<const CacheRule*, ProviderCounts>& by_rule) const {
    double cost = 0, read = 0, written = 0;
    for (const Priced& p : priced_) {
      const CacheRule* rule = options_.prices->rule(p.price->cache_rule);
      const ProviderCounts* counts = rule != nullptr ? &by_rule.at(rule) : nullptr;
      const double of_cache = counts != nullptr ? counts->read_by_model[p.model] : 0;
      const double to_cache = counts != nullptr ? counts->written_by_model[p.model] : 0;
      cost += model_cost(p, of_cache, rule != nullptr && rule->breakpoints ? to_cache : 0, rule != nullptr ? rule->retention_us : 0);
      read += of_cache;
      written += to_cache;
    }
    json::object out = policy("providers", cost);
    out["read_tokens"] = whole(read);
    out["written_tokens"] = whole(written);
    return out;
  }

  static double sum(const std::vector<double>& values) {
    double out = 0;
    for (const double v : values) out += v;
    return out;
  }

  // The shortest retention that has all but a hundredth of what an unlimited one has. The range: with tenants apart, to shared by all;
  // widened by the error of a sample.
  json::object best_section() const {
    size_t best = forever();
    const size_t last = capacity_tokens_.size();
    const double all = main_.hit(forever(), last, main_options_);
    for (size_t i = 0; i < forever(); ++i) {
      if (knows_retention(i) && main_.hit(i, last, main_options_) >= 0.99 * all) {
        best = i;
        break;
      }
    }
    const double cost = input_cost(hits_by_model(best), nullptr), none = input_cost(no_hits(), nullptr);
    const double of_hits = none - cost, hit = main_.hit(best, last, main_options_), error = main_.error(best, last, main_options_);
    const double apart = share(tenant_hit_, all), low = of_hits * std::max(0.0, apart - share(error, hit)), high = of_hits * (1 + share(error, hit));
    const double base = today_ - none;
    return {{"policy", best == forever() ? std::string("retention_unlimited") : "retention_" + standard_retentions()[best].name},
            {"saved", today_ - cost}, {"saved_low", base + low}, {"saved_high", base + high}, {"saved_share", share(today_ - cost, today_)},
            {"saved_per_month", per_month(today_ - cost)}, {"saved_per_month_low", per_month(base + low)}, {"saved_per_month_high", per_month(base + high)}};
  }

  json::object hardware_section() const {
    const OwnHardware& hw = *options_.hardware;
    double output = 0;
    for (const ModelTotals& model : totals_) output += static_cast<double>(model.usage.output);
    const double second = hw.accelerator_hour / 3600;
    const auto one = [&](double hit) {
      const double prefill_hours = (input_tokens_ - hit) / hw.prefill_rate / 3600, decode_hours = output / hw.decode_rate / 3600;
      const double hours = prefill_hours + decode_hours, cost = hours * hw.accelerator_hour;
      double revenue = output_cost();
      for (const Priced& p : priced_) {
        const double input = static_cast<double>(totals_[p.model].usage.counted), part = share(hit, input_tokens_) * input;
        revenue += ((input - part) * p.price->input + part * p.price->cached) / 1e6;
      }
      json::object out{{"accelerator_hours", hours}, {"cost", cost}, {"cost_per_million_input_tokens", share(prefill_hours * hw.accelerator_hour * 1e6, input_tokens_)},
                       {"cost_per_million_output_tokens", known_if(output > 0, share(decode_hours * hw.accelerator_hour * 1e6, output))}};
      if (!priced_.empty()) out["margin_per_accelerator_hour"] = share(revenue - cost, hours);
      return out;
    };
    json::object out{{"accelerator_hour", hw.accelerator_hour}, {"prefill_rate", hw.prefill_rate}, {"decode_rate", hw.decode_rate},
                     {"new_input_per_million", second / hw.prefill_rate * 1e6}, {"output_per_million", second / hw.decode_rate * 1e6}};
    out["without_cache"] = one(0);
    for (size_t i = 0; i < forever(); ++i) {
      if (!knows_retention(i)) continue;
      out["retention_" + standard_retentions()[i].name] = one(main_.hit(i, capacity_tokens_.size(), main_options_));
    }
    if (knows_reuse_) out["retention_unlimited"] = one(main_.hit(forever(), capacity_tokens_.size(), main_options_));
    return out;
  }

  // --- breakers

  json::array breaker_section(size_t limit) const {
    json::array out;
    for (const Breaker& breaker : audit_.breakers().ranked()) {
      if (out.size() == limit) break;
      double cost = 0;
      bool has_price = false;
      json::object by_model;
      for (const auto& [model, lost] : breaker.lost_by_model) {
        by_model[model] = lost;
        for (const Priced& p : priced_) {
          if (totals_[p.model].name != model) continue;
          has_price = true;
          cost += p.scale * static_cast<double>(lost) * (p.price->input - p.price->cached) / 1e6;
        }
      }
      json::object one{{"kind", break_name(breaker.kind)}, {"segment", breaker.segment}, {"template", breaker.template_name},
                       {"count", breaker.count}, {"lost_tokens", breaker.lost_tokens}, {"lost_by_model", std::move(by_model)},
                       {"first_position_min", breaker.min_position}, {"first_position_max", breaker.max_position}};
      one["cost"] = has_price ? json::value(cost) : json::value(nullptr);
      one["cost_per_month"] = has_price ? per_month(cost) : json::value(nullptr);
      one["example"] = json::object{{"before", breaker.example.before}, {"old", breaker.example.old_text}, {"new", breaker.example.new_text},
                                    {"after", breaker.example.after}};
      one["suggestion"] = break_suggestion(breaker.kind);
      out.push_back(std::move(one));
    }
    return out;
  }

  json::object shard_section() const {
    json::array formats, skipped;
    for (const uint64_t n : audit_.input().records_by_format) formats.push_back(n);
    for (const uint64_t n : audit_.input().skipped) skipped.push_back(n);
    json::object out;
    if (!trace_.requests.empty()) out["trace"] = encode_base64(trace_.encode());
    out["lengths"] = audit_.lengths().encode();
    out["formats"] = std::move(formats);
    out["skipped"] = std::move(skipped);
    out["breakers"] = breaker_section(SIZE_MAX);
    out["repeated_tokens"] = audit_.repeated_tokens();
    out["text_bytes"] = audit_.input().text_bytes;
    out["encoded_bytes"] = audit_.input().encoded_bytes;
    return out;
  }

  bool knows_trace() const { return !trace_.requests.empty(); }

  struct ModelTotals {
    std::string name;
    UsageSums usage;
  };
  const Audit& audit_;
  const ReportOptions& options_;
  const RequestTrace& trace_;
  std::vector<uint32_t> order_;
  double span_us_ = 0, input_tokens_ = 0;
  bool knows_reuse_ = false;  // of an unlimited cache: the log tells it, and the sample is large enough
  std::vector<ModelTotals> totals_;  // of a trace, by its number of the model
  int main_multiple_ = 1;
  std::vector<uint64_t> capacity_tokens_;
  ReplayOptions main_options_;
  ReplayScratch scratch_;
  ReuseCounts main_;
  std::vector<double> hit_of_;
  double tenant_hit_ = 0;
  std::vector<Priced> priced_;
  double today_ = 0;
};

template <class T>
T number(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_number()) return 0;
  boost::system::error_code error;
  const T out = value->to_number<T>(error);
  return error ? T{0} : out;
}

std::string text(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

Breaker read_breaker(const json::object& from) {
  Breaker out;
  const std::string kind = text(from, "kind");
  for (int k = 0; k <= static_cast<int>(BreakKind::kRendering); ++k) {
    if (break_name(static_cast<BreakKind>(k)) == kind) out.kind = static_cast<BreakKind>(k);
  }
  out.segment = text(from, "segment");
  out.template_name = text(from, "template");
  out.count = number<int64_t>(from, "count");
  out.lost_tokens = number<int64_t>(from, "lost_tokens");
  out.min_position = number<int64_t>(from, "first_position_min");
  out.max_position = number<int64_t>(from, "first_position_max");
  if (const json::value* models = from.if_contains("lost_by_model"); models != nullptr && models->is_object()) {
    for (const auto& [model, lost] : models->get_object()) {
      if (lost.is_int64()) out.lost_by_model[std::string(model)] = lost.get_int64();
    }
  }
  if (const json::value* example = from.if_contains("example"); example != nullptr && example->is_object()) {
    const json::object& e = example->get_object();
    out.example = {text(e, "before"), text(e, "old"), text(e, "new"), text(e, "after")};
  }
  return out;
}

}  // namespace

const std::vector<Retention>& standard_retentions() {
  constexpr int64_t kMinute = 60'000'000, kHour = 60 * kMinute;
  static const std::vector<Retention> kAll = {{"5m", 5 * kMinute}, {"1h", kHour}, {"12h", 12 * kHour},
                                              {"24h", 24 * kHour}, {"72h", 72 * kHour}, {"7d", 168 * kHour}};
  return kAll;
}

namespace {

// Why there is nothing to report: what was passed over, and files that could not be read.
Error nothing_found(const InputSummary& in, bool redact) {
  std::string message = "no request was found in the logs";
  const char* separator = ": ";
  for (int i = 0; i < kNumSkips; ++i) {
    const uint64_t count = in.skipped[static_cast<size_t>(i)];
    if (count > 0) message += fmt::format("{}{} {}", std::exchange(separator, ", "), count, skip_reason(static_cast<Skip>(i)));
  }
  for (const std::string& error : in.errors) message += std::exchange(separator, ", ") + (redact ? digest_name(error) : error);
  return {Code::kNotFound, std::move(message)};
}

}  // namespace

Result<json::object> make_report(const Audit& audit, const ReportOptions& options) {
  if (audit.trace() != nullptr) return Report(audit, options, *audit.trace()).make();
  const RequestTrace none(1, 1);
  if (audit.lengths().num_requests() > 0) return Report(audit, options, none).make_of_lengths();
  if (!options.shard) return nothing_found(audit.input(), options.redact);
  return Report(audit, options, none).make_empty();
}

Result<> add_shard(const json::object& report, Audit& audit) {
  const json::value* of_shard = report.if_contains("shard");
  const json::value* input = report.if_contains("input");
  if (of_shard == nullptr || !of_shard->is_object() || input == nullptr || !input->is_object()) {
    return Error{Code::kInvalidArgument, "the report has no shard in it; write it with --shard"};
  }
  const json::object& shard = of_shard->get_object();
  const json::object& in = input->get_object();
  Findings found;
  if (shard.contains("trace")) {
    const std::optional<std::string> bytes = decode_base64(text(shard, "trace"));
    if (!bytes) return Error{Code::kCorruption, "the request trace is not base64"};
    DI_TRY(found.trace, RequestTrace::decode(*bytes, UINT32_MAX - 3));
  }
  if (const json::value* lengths = shard.if_contains("lengths"); lengths != nullptr) {
    std::optional<LengthLog> decoded = LengthLog::decode(*lengths);
    if (!decoded) return Error{Code::kCorruption, "the log of lengths is damaged"};
    found.lengths = *std::move(decoded);
  }
  InputSummary& summary = found.input;
  summary.num_files = number<uint64_t>(in, "files");
  summary.num_bytes = number<uint64_t>(in, "bytes");
  summary.num_values = number<uint64_t>(in, "values");
  summary.num_incomplete = number<uint64_t>(in, "incomplete");
  summary.num_without_time = number<uint64_t>(in, "without_time");
  summary.num_wrong_clock = number<uint64_t>(in, "wrong_clock");
  summary.num_backward = number<uint64_t>(in, "backward_clock");
  summary.num_unrendered = number<uint64_t>(in, "unrendered");
  summary.text_bytes = number<uint64_t>(shard, "text_bytes");
  summary.encoded_bytes = number<uint64_t>(shard, "encoded_bytes");
  const auto read_counts = [&](std::string_view key, auto& counts) {
    const json::value* list = shard.if_contains(key);
    if (list == nullptr || !list->is_array()) return;
    for (size_t i = 0; i < counts.size() && i < list->get_array().size(); ++i) {
      const json::value& n = list->get_array()[i];
      if (n.is_int64() && n.get_int64() >= 0) counts[i] = static_cast<uint64_t>(n.get_int64());
      if (n.is_uint64()) counts[i] = n.get_uint64();
    }
  };
  read_counts("formats", summary.records_by_format);
  read_counts("skipped", summary.skipped);
  if (const json::value* list = shard.if_contains("breakers"); list != nullptr && list->is_array()) {
    for (const json::value& one : list->get_array()) {
      if (one.is_object()) found.breakers.push_back(read_breaker(one.get_object()));
    }
  }
  const json::value* times = in.if_contains("has_times");
  found.has_times = found.trace && times != nullptr && times->is_bool() && times->get_bool();
  found.repeated_tokens = number<double>(shard, "repeated_tokens");
  return audit.append(std::move(found));
}

}  // namespace deepinfer::trace
