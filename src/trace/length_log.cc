#include "trace/length_log.h"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <utility>

#include "trace/json_value.h"

namespace deepinfer::trace {
namespace json = boost::json;
namespace {

constexpr std::array<std::pair<std::string_view, int64_t UsageSums::*>, 11> kUsageSums = {{
    {"requests", &UsageSums::num_requests}, {"with_input", &UsageSums::num_with_input}, {"with_cached", &UsageSums::num_with_cached},
    {"with_output", &UsageSums::num_with_output}, {"counted", &UsageSums::counted}, {"counted_of_logged", &UsageSums::counted_of_logged},
    {"input", &UsageSums::input}, {"cached", &UsageSums::cached}, {"written", &UsageSums::written}, {"written_1h", &UsageSums::written_1h},
    {"output", &UsageSums::output}}};

std::optional<int64_t> whole_at(const json::value& object, std::string_view key) {
  const json::object* members = object.if_object();
  const json::value* found = members != nullptr ? members->if_contains(key) : nullptr;
  boost::system::error_code error;
  const int64_t out = found != nullptr && found->is_number() ? found->to_number<int64_t>(error) : -1;
  return error || out < 0 ? std::nullopt : std::optional(out);
}

const json::value* member_of(const json::value& object, std::string_view key) { return object.is_object() ? object.get_object().if_contains(key) : nullptr; }

}  // namespace

void UsageSums::add(int64_t counted_input, const LoggedUsage& usage) {
  ++num_requests;
  counted += counted_input;
  if (usage.output >= 0) {
    ++num_with_output;
    output += usage.output;
  }
  if (usage.input < 0) return;
  ++num_with_input;
  num_with_cached += usage.cached >= 0;
  counted_of_logged += counted_input;
  // No part is larger than the whole, whatever a log says.
  const int64_t of_cache = std::clamp<int64_t>(usage.cached, 0, usage.input);
  const int64_t to_cache = std::clamp<int64_t>(usage.written, 0, usage.input - of_cache);
  input += usage.input;
  cached += of_cache;
  written += to_cache;
  written_1h += std::clamp<int64_t>(usage.written_1h, 0, to_cache);
}

void UsageSums::append(const UsageSums& other) {
  for (const auto& [name, field] : kUsageSums) this->*field += other.*field;
}

void TimeBuckets::add(int64_t time_us, int64_t tokens) {
  first_us_ = empty() ? time_us : std::min(first_us_, time_us);
  last_us_ = empty() ? time_us : std::max(last_us_, time_us);
  tokens_[time_us >> shift_] += tokens;
  widen(shift_);
}

void TimeBuckets::append(const TimeBuckets& other) {
  if (other.empty()) return;
  first_us_ = empty() ? other.first_us_ : std::min(first_us_, other.first_us_);
  last_us_ = empty() ? other.last_us_ : std::max(last_us_, other.last_us_);
  const int shift = std::max(shift_, other.shift_);
  widen(shift);
  for (const auto& [bucket, tokens] : other.tokens_) tokens_[bucket >> (shift_ - other.shift_)] += tokens;
  widen(shift_);
}

// To `shift` at least, and on until the buckets are few enough.
void TimeBuckets::widen(int shift) {
  int wanted = std::max(shift, shift_);
  while ((last_us_ >> wanted) - (first_us_ >> wanted) >= kMaxBuckets) ++wanted;
  if (wanted == shift_) return;
  std::map<int64_t, int64_t> wide;
  for (const auto& [bucket, tokens] : tokens_) wide[bucket >> (wanted - shift_)] += tokens;
  tokens_ = std::move(wide);
  shift_ = wanted;
}

json::object TimeBuckets::encode() const {
  json::array buckets;
  for (const auto& [bucket, tokens] : tokens_) buckets.push_back(json::array{bucket, tokens});
  return {{"shift", shift_}, {"first_us", first_us_}, {"last_us", last_us_}, {"buckets", std::move(buckets)}};
}

std::optional<TimeBuckets> TimeBuckets::decode(const json::value& from) {
  TimeBuckets out;
  const auto shift = whole_at(from, "shift"), first = whole_at(from, "first_us"), last = whole_at(from, "last_us");
  const json::value* buckets = member_of(from, "buckets");
  if (!shift || *shift > 62 || !first || !last || *last < *first || buckets == nullptr || !buckets->is_array()) return std::nullopt;
  out.shift_ = static_cast<int>(*shift);
  out.first_us_ = *first;
  out.last_us_ = *last;
  for (const json::value& one : buckets->get_array()) {
    const json::array* pair = one.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_int64() || !(*pair)[1].is_int64()) return std::nullopt;
    const int64_t bucket = (*pair)[0].get_int64();
    if (bucket < *first >> out.shift_ || bucket > *last >> out.shift_) return std::nullopt;
    out.tokens_[bucket] += (*pair)[1].get_int64();
  }
  out.widen(out.shift_);
  return out;
}

void LengthLog::add(const std::string& model, std::optional<int64_t> time_us, const LoggedUsage& usage) {
  by_model_[model].add(usage.input, usage);
  if (!time_us) {
    ++num_without_time_;
  } else if (is_clock_us(*time_us)) {
    clock_.add(*time_us, usage.input);
  } else if (is_before_clocks_us(*time_us)) {
    relative_.add(*time_us, usage.input);
    ++num_relative_;
  } else {
    ++num_impossible_;
  }
}

void LengthLog::append(const LengthLog& other) {
  for (const auto& [model, usage] : other.by_model_) by_model_[model].append(usage);
  clock_.append(other.clock_);
  relative_.append(other.relative_);
  num_relative_ += other.num_relative_;
  num_impossible_ += other.num_impossible_;
  num_without_time_ += other.num_without_time_;
}

UsageSums LengthLog::all() const {
  UsageSums out;
  for (const auto& [model, usage] : by_model_) out.append(usage);
  return out;
}

int64_t LengthLog::num_requests() const { return all().num_requests; }

json::object LengthLog::encode() const {
  json::array models;
  for (const auto& [model, usage] : by_model_) {
    json::object one{{"model", model}};
    for (const auto& [name, field] : kUsageSums) one[name] = usage.*field;
    models.push_back(std::move(one));
  }
  return {{"models", std::move(models)}, {"clock", clock_.encode()}, {"relative", relative_.encode()}, {"num_relative", num_relative_},
          {"num_impossible", num_impossible_}, {"num_without_time", num_without_time_}};
}

std::optional<LengthLog> LengthLog::decode(const json::value& from) {
  LengthLog out;
  const json::value *models = member_of(from, "models"), *clock = member_of(from, "clock"), *relative = member_of(from, "relative");
  if (models == nullptr || !models->is_array() || clock == nullptr || relative == nullptr) return std::nullopt;
  for (const json::value& one : models->get_array()) {
    const json::value* model = member_of(one, "model");
    if (model == nullptr || !model->is_string()) return std::nullopt;
    UsageSums& usage = out.by_model_[std::string(model->get_string())];
    for (const auto& [name, field] : kUsageSums) {
      const auto value = whole_at(one, name);
      if (!value) return std::nullopt;
      usage.*field = *value;
    }
  }
  const std::optional<TimeBuckets> times[] = {TimeBuckets::decode(*clock), TimeBuckets::decode(*relative)};
  const auto num_relative = whole_at(from, "num_relative"), impossible = whole_at(from, "num_impossible"), without = whole_at(from, "num_without_time");
  if (!times[0] || !times[1] || !num_relative || !impossible || !without) return std::nullopt;
  out.clock_ = *times[0];
  out.relative_ = *times[1];
  out.num_relative_ = *num_relative;
  out.num_impossible_ = *impossible;
  out.num_without_time_ = *without;
  return out;
}

}  // namespace deepinfer::trace
