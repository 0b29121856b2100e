#include "api/generation_run.h"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "base/check.h"

namespace deepinfer::api {
namespace json = boost::json;
namespace {

using std::chrono::steady_clock;

// A client that goes away is logged with the code that the field uses for it.
constexpr int kClientClosedRequest = 499;

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

int64_t to_ns(Connection::Time time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// An end that came without anything of an answer.
bool is_fault(const TokenEvent& event) {
  return !event.has_token && (event.finished == FinishReason::kError || event.finished == FinishReason::kCancelled);
}

// Where the prompt's tokens came from; of those that were computed, how many were known and why they could not be had; where the longest
// match ended, and its age.
std::string cache_header(const Usage& usage) {
  std::string out = fmt::format("ram={}, disk={}, shared={}, computed={}", usage.cached_tokens - usage.disk_tokens - usage.shared_tokens, usage.disk_tokens,
                                usage.shared_tokens, usage.prompt_tokens - usage.cached_tokens);
  const PrefixMatch& match = usage.match;
  if (match.tokens > usage.cached_tokens) out += fmt::format(", {}={}", kCacheMissNames[static_cast<size_t>(match.missed)], match.tokens - usage.cached_tokens);
  out += fmt::format(", divergent-at={}", match.tokens);
  if (match.age_s >= 0) out += fmt::format(", age={}", match.age_s);
  return out;
}

ApiError failure(const recipe::Answer& answer) {
  return answer.cancelled() ? overloaded(answer.error()) : internal_error(answer.error());
}

}  // namespace

GenerationRun::GenerationRun(Connection& connection, Generation generation, Framing framing, Headers headers, ErrorShape shape,
                             Connection::Time arrived, RequestRecord& record)
    : connection_(connection),
      service_(connection.service()),
      generation_(std::move(generation)),
      framing_(framing),
      headers_(std::move(headers)),
      shape_(shape),
      arrived_(arrived),
      record_(record),
      last_sent_(steady_clock::now()) {
  const recipe::AnswerInfo& info = generation_.info;
  answer_ = recipe::make_answer(generation_.protocol, info, service_.tokenizer);
  choices_.reserve(static_cast<size_t>(info.n));
  for (int32_t i = 0; i < info.n; ++i) {
    choices_.push_back({.parser = recipe::OutputParser(service_.tokenizer, generation_.output)});
  }
  record_.model = info.model;
  record_.stream = info.stream;
  // Only a stream is bounded: a whole answer is collected as fast as it comes, whatever the client does.
  const size_t max_events = info.stream ? service_.options.max_buffered_events : SIZE_MAX;
  mailbox_ = std::make_shared<Mailbox>(max_events, service_.clock, connection_.waker());
}

GenerationRun::~GenerationRun() {
  mailbox_->close();
  service_.live.remove(generation_.info.id);
  if (id_ != 0 && !all_ended()) cancel();
}

asio::awaitable<bool> GenerationRun::run() {
  record_.usage.prompt_tokens = static_cast<int32_t>(generation_.request.prompt.size());
  live_.tenant = generation_.request.tenant;
  const Result<RequestId> id = service_.inference.submit(std::move(generation_.request), mailbox_);
  if (!id) co_return co_await refuse(from_error(id.error(), service_.inference.stats().estimated_queue_seconds));
  id_ = *id;
  if (generation_.protocol == recipe::Protocol::kResponses) {
    live_.request = id_;
    live_.response = answer_->body();
    service_.live.add(generation_.info.id, live_);
  }
  while (true) {
    connection_.watch();
    if (connection_.gone()) abandon("the client closed the connection");
    if (connection_.aborted()) cancel();
    collect();
    if (answer_->failed() && !discarding_) {
      co_await report_failure();
    } else if (!frames_.empty() && !all_ended()) {
      const bool sent = co_await send_frames(/*last=*/false);
      if (!sent) abandon("the client took too long to read");
    } else if (all_ended()) {
      break;
    } else {
      co_await connection_.wait_until(next_deadline());
      if (next_deadline() > steady_clock::now()) continue;
      // The deadline passed without frames: the stream shows that it lives.
      if (head_sent_) frames_ += answer_->keep_alive();
      const bool sent = co_await send_frames(/*last=*/false);
      if (!sent) abandon("the client took too long to read");
    }
  }
  co_return co_await finish();
}

void GenerationRun::collect() {
  if (!mailbox_->take(events_) && !discarding_) abandon("the client took too long to read");
  for (const TimedEvent& timed : events_) on_event(timed);
}

void GenerationRun::on_event(const TimedEvent& timed) {
  const TokenEvent& event = timed.event;
  CHECK(event.choice >= 0);
  CHECK(event.choice < static_cast<int32_t>(choices_.size()));
  Choice& choice = choices_[static_cast<size_t>(event.choice)];
  CHECK(!choice.ended);  // one end event a choice, nothing after it
  if (event.has_token) note_token(choice, timed.at_ns);
  if (event.choice == 0) first_usage_ = event.usage;
  const bool was_stopped = choice.parser.stopped();
  if (generation_.info.stream && !begun_ && (!is_fault(event) || *live_.cancelled)) {
    begun_ = true;
    answer_->begin_stream(event.usage, frames_);
  }
  outputs_.clear();
  choice.parser.push(event, outputs_);
  if (*live_.cancelled) answer_->allow_cancel();
  for (const recipe::OutputEvent& output : outputs_) answer_->on_output(event.choice, output, frames_);
  if (event.finished) {
    choice.ended = true;
    num_ended_ += 1;
  } else if (choice.parser.stopped() && !was_stopped && !cancelled_) {
    service_.inference.cancel_choice(id_, event.choice);  // its end comes within a step, whatever its siblings do
  }
  if (discarding_) frames_.clear();
}

void GenerationRun::note_token(Choice& choice, int64_t at_ns) {
  if (first_token_ns_ == 0) {
    first_token_ns_ = at_ns;
    service_.metrics.first_token(seconds(at_ns - to_ns(arrived_)));
  }
  if (choice.last_token_ns != 0) {
    const double interval = seconds(at_ns - choice.last_token_ns);
    service_.metrics.next_token(interval);
    interval_sum_s_ += interval;
    num_intervals_ += 1;
  }
  choice.last_token_ns = at_ns;
}

void GenerationRun::cancel() {
  if (cancelled_) return;
  cancelled_ = true;
  service_.inference.cancel(id_);
}

void GenerationRun::abandon(std::string_view reason) {
  if (discarding_) return;
  discarding_ = true;
  frames_.clear();
  record_.status = kClientClosedRequest;
  record_.error = reason;
  cancel();
  connection_.close();
}

asio::awaitable<bool> GenerationRun::refuse(const ApiError& error) {
  Response response = error_response(error, shape_, record_.id);
  response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
  record_.status = response.status;
  record_.error = error.message;
  co_return co_await connection_.write(format_response(response, framing_)) && framing_.keep_alive;
}

// Nothing that looks like success may follow.
asio::awaitable<void> GenerationRun::report_failure() {
  const ApiError error = failure(*answer_);
  record_.status = error.status;
  record_.error = error.message;
  if (head_sent_) {
    answer_->fail_stream(error_json(error, shape_, record_.id), error.message, frames_);
    co_await send_frames(/*last=*/true);
  } else {
    Response response = error_response(error, shape_, record_.id);
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    co_await connection_.write(format_response(response, {.version = framing_.version, .keep_alive = false}));
  }
  frames_.clear();
  discarding_ = true;
  cancel();
}

asio::awaitable<bool> GenerationRun::send_frames(bool last) {
  std::string out;
  if (!head_sent_) {
    Response head{.content_type = "text/event-stream; charset=utf-8", .headers = headers_};
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");
    if (first_token_ns_ != 0) head.headers.emplace_back("x-deepinfer-cache", cache_header(first_usage_));
    out = format_stream_head(head, framing_);
    head_sent_ = true;
    record_.status = 200;
  }
  append_chunk(frames_, framing_, out);
  if (last) append_last_chunk(framing_, out);
  frames_.clear();
  last_sent_ = steady_clock::now();
  co_return co_await connection_.write(out);
}

Connection::Time GenerationRun::next_deadline() const {
  const ServerOptions& options = service_.options;
  if (!generation_.info.stream || discarding_) return Connection::Time::max();
  if (head_sent_) return last_sent_ + options.keep_alive_interval;
  return options.early_headers ? arrived_ : arrived_ + options.header_delay;
}

asio::awaitable<bool> GenerationRun::finish() {
  finish_record();
  if (discarding_) co_return false;
  co_await keep();
  if (generation_.info.stream) {
    answer_->end_stream(frames_);
    const bool sent = co_await send_frames(/*last=*/true);
    if (!sent) record_.status = kClientClosedRequest;
    co_return sent && framing_.keep_alive && framing_.version == 11;
  }
  Response response{.body = answer_->body(), .headers = headers_};
  response.headers.emplace_back("x-deepinfer-cache", cache_header(first_usage_));
  const bool sent = co_await connection_.write(format_response(response, framing_));
  record_.status = sent ? 200 : kClientClosedRequest;
  co_return sent && framing_.keep_alive;
}

// Before the client hears of the end, so that it finds what it was told of.
asio::awaitable<void> GenerationRun::keep() {
  if (!generation_.keep || *live_.removed) co_return;
  StoredResponse stored{.id = generation_.info.id,
                        .tenant = live_.tenant,
                        .created_unix_s = generation_.info.created_unix_s,
                        .previous_id = std::move(generation_.keep->previous_id),
                        .response = answer_->body(),
                        .input = std::move(generation_.keep->input)};
  const auto kept = std::make_shared<Result<>>(Error{Code::kUnavailable, "the server is stopping"});
  std::function<void()> work = [&service = service_, kept, removed = live_.removed, stored = std::move(stored)] {
    *kept = service.store->put(stored, unix_now());
    if (*removed) (void)service.store->remove(stored.id, stored.tenant, unix_now());
  };
  co_await connection_.on_worker(std::move(work));
  if (*kept) co_return;
  record_.error = "not kept: " + kept->error().message;
  answer_->mark_unkept();
}

void GenerationRun::finish_record() {
  record_.usage = answer_->usage();
  if (record_.status == kClientClosedRequest || answer_->cancelled()) {
    record_.finish = "cancelled";
  } else {
    record_.finish = answer_->failed() ? "error" : answer_->finish_reason();
  }
  if (first_token_ns_ != 0) record_.ttft_ms = seconds(first_token_ns_ - to_ns(arrived_)) * 1e3;
  if (num_intervals_ > 0) record_.tpot_ms = interval_sum_s_ / static_cast<double>(num_intervals_) * 1e3;
  service_.metrics.request_ended(record_.endpoint, record_.finish);
  service_.metrics.answered(seconds(to_ns(steady_clock::now()) - to_ns(arrived_)), record_.usage);
  if (first_token_ns_ == 0) return;  // what would have been found is not known
  const auto fall = service_.hit_rates.add(live_.tenant, record_.usage.prompt_tokens, record_.usage.cached_tokens);
  if (!fall) return;
  service_.metrics.hit_rate_fell();
  service_.options.log.add(HitRateFall{.unix_ms = unix_now() * 1000, .tenant = service_.options.keys.tenant_name(live_.tenant), .usual = fall->usual, .late = fall->late});
}

}  // namespace deepinfer::api
