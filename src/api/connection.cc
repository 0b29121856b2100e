#include "api/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "api/generation_run.h"
#include "api/openapi.h"
#include "api/routes.h"
#include "recipe/fields.h"

// g++ 12 takes a coroutine frame's own operator delete for a mismatch with its operator new, which it inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace deepinfer::api {
namespace {

namespace http = boost::beast::http;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kWritePiece = 64u << 10;        // what write_timeout is for
constexpr size_t kMaxPipelined = 64u << 10;      // read ahead of the request being answered
constexpr size_t kUncountedBody = 64u << 10;     // bodies up to here are bounded by the number of connections
constexpr milliseconds kLingerTime{2000};        // for a client to read why its request was not
constexpr size_t kLingerBytes = 64u << 20;

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

bool is_request_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

// A comma-separated list of header names and nothing else.
bool is_header_list(std::string_view text) {
  return text.size() <= 4096 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == ',' || c == ' ';
  });
}

// What is wrong with a request whose route is not known, or no longer matters.
ApiError malformed(const error_code& error) {
  const auto with_status = [](int status, std::string_view code, std::string message) {
    ApiError out = bad_request(std::move(message));
    out.status = status;
    out.code = code;
    return out;
  };
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return with_status(431, "header_too_large", "the head of the request is too large");
  }
  if (error == http::error::body_limit) return with_status(413, "request_too_large", "the body of the request is too large");
  return with_status(400, "invalid_request_error", fmt::format("malformed HTTP request: {}", error.message()));
}

ApiError too_slow(std::string_view what) {
  ApiError out = bad_request(fmt::format("{} did not arrive in time", what));
  out.status = 408;
  return out;
}

Response closing(Response response) {
  response.close = true;
  return response;
}

}  // namespace

// A request on its way through.
struct Connection::Incoming {
  explicit Incoming(Service& service) : service(service) {
    parser.header_limit(static_cast<uint32_t>(service.options.max_header_bytes));
    parser.body_limit(service.options.max_body_bytes);
  }
  ~Incoming() { release(); }
  void release() { service.pending_body_bytes -= std::exchange(reserved, 0); }
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  std::string_view header(http::field name) const { return view(parser.get()[name]); }
  std::string_view header(std::string_view name) const { return view(parser.get()[boost::beast::string_view(name.data(), name.size())]); }

  Response error(const ApiError& error) const { return error_response(error, shape, record.id); }

  bool may_skip_body() const {
    return !parser.chunked() && parser.content_length().value_or(0) <= kUncountedBody && header(http::field::expect).empty();
  }

  Service& service;
  http::request_parser<http::string_body> parser;
  Time arrived{};          // first byte
  Route route;
  std::string tenant;
  Framing framing;
  ErrorShape shape = ErrorShape::kOpenAi;
  Headers headers;         // that every answer to this request has
  RequestRecord record;
  size_t reserved = 0;     // of Service::pending_body_bytes
};

Connection::Connection(Service& service, Transport transport)
    : service_(service), transport_(std::move(transport)), signal_(transport_.executor()), watchdog_(transport_.executor()) {}

// --- waiting and waking

void Connection::signal() { signal_.cancel(); }

std::function<void()> Connection::waker() {
  return [executor = transport_.executor(), weak = weak_from_this()] {
    asio::post(executor, [weak] {
      if (const std::shared_ptr<Connection> self = weak.lock()) self->signal();
    });
  };
}

// Callers test what they wait for first and again afterwards: signals are handled on this same thread, so none is lost in between.
asio::awaitable<void> Connection::wait_until(Time deadline) {
  signal_.expires_at(deadline);
  co_await signal_.async_wait(kAwait);
}

void Connection::arm(milliseconds timeout) {
  watchdog_.expires_after(timeout);
  watchdog_.async_wait([weak = weak_from_this(), round = ++watchdog_round_](error_code error) {
    const std::shared_ptr<Connection> self = error ? nullptr : weak.lock();
    if (self && self->watchdog_round_ == round) self->close();
  });
}

void Connection::disarm() {
  ++watchdog_round_;  // a handler that is already queued must not close the connection any more
  watchdog_.cancel();
}

void Connection::close() {
  gone_ = true;
  transport_.close();
  signal();
}

void Connection::on_drain() {
  closing_ = true;
  if (idle_) close();
}

void Connection::on_abort() {
  closing_ = aborted_ = true;
  signal();
}

// --- bytes

void Connection::start_read() {
  if (read_pending_ || read_error_ || gone_) return;
  read_pending_ = true;
  transport_.async_read_some(asio::buffer(chunk_), [self = shared_from_this()](error_code error, size_t size) {
    self->read_pending_ = false;
    if (error) self->read_error_ = true;
    self->buffer_.append(self->chunk_.data(), size);
    self->signal();
  });
}

void Connection::watch() {
  if (buffer_.size() < kMaxPipelined) start_read();
}

asio::awaitable<Connection::Fill> Connection::more(Time deadline) {
  const size_t before = buffer_.size();
  start_read();
  while (buffer_.size() == before) {
    if (gone() || aborted_) co_return Fill::kClosed;
    if (steady_clock::now() >= deadline) co_return Fill::kTimeout;
    co_await wait_until(deadline);
  }
  co_return Fill::kData;
}

asio::awaitable<bool> Connection::write(std::string_view data) {
  while (!data.empty()) {
    if (gone_) co_return false;
    const std::string_view piece = data.substr(0, kWritePiece);
    arm(service_.options.write_timeout);
    const error_code error = co_await transport_.write(piece);
    disarm();
    if (error) {
      gone_ = true;
      co_return false;
    }
    data.remove_prefix(piece.size());
  }
  co_return true;
}

// Closing with unread bytes makes the kernel throw away what was just sent. So, if there may be some: say that we are done, read on for
// a moment, close.
asio::awaitable<void> Connection::linger() {
  arm(kLingerTime);
  if (!read_pending_ || !transport_.is_tls()) co_await transport_.shutdown();
  size_t seen = 0;
  while (unread_ && !gone() && seen < kLingerBytes) {
    buffer_.clear();
    if (co_await more(Time::max()) != Fill::kData) break;
    seen += buffer_.size();
  }
  disarm();
}

// --- one request after the other

asio::awaitable<void> Connection::run() {
  const std::shared_ptr<Connection> self = shared_from_this();
  try {
    arm(service_.options.header_timeout);
    const error_code error = co_await transport_.handshake();
    disarm();
    if (!error) co_await serve();
  } catch (const std::exception&) {
    // Out of memory, or a library that throws after all: this connection ends, the others go on.
  }
  close();
}

asio::awaitable<void> Connection::serve() {
  bool more_requests = true;
  while (more_requests && !closing_ && !gone()) {
    Incoming in(service_);
    more_requests = co_await read_head(in);
    if (!more_requests) continue;
    more_requests = co_await answer(in);
    finish_record(in);
  }
  if (!gone()) co_await linger();
}

asio::awaitable<void> Connection::refuse() {
  const std::shared_ptr<Connection> self = shared_from_this();
  unread_ = true;
  try {
    const Response response = error_response(overloaded("too many connections"));
    if (co_await write(format_response(response, {.keep_alive = false}))) co_await linger();
  } catch (const std::exception&) {
  }
  close();
}

// False: there is no request to answer (closed, timed out) or an answer was sent that ends the connection.
asio::awaitable<bool> Connection::read_head(Incoming& in) {
  error_code error;
  const Time idle_end = steady_clock::now() + service_.options.idle_timeout;
  while (true) {
    buffer_.erase(0, std::min(buffer_.find_first_not_of("\r\n"), buffer_.size()));  // line ends before a request mean nothing
    if (!buffer_.empty()) break;
    idle_ = true;
    const Fill fill = co_await more(idle_end);
    idle_ = false;
    if (fill != Fill::kData) co_return false;
  }
  in.arrived = steady_clock::now();
  in.record.unix_ms = std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  in.record.endpoint = endpoint_name(Endpoint::kUnknown);
  const Time deadline = in.arrived + service_.options.header_timeout;
  while (true) {
    buffer_.erase(0, in.parser.put(asio::buffer(buffer_), error));
    if (in.parser.is_header_done() || (error && error != http::error::need_more)) break;
    const Fill fill = co_await more(deadline);
    if (fill == Fill::kData) continue;
    if (fill == Fill::kTimeout) {
      in.record.id = service_.new_id("req_");
      Response response = closing(in.error(too_slow("the request")));
      co_await send(in, std::move(response));
      finish_record(in);
    }
    co_return false;
  }
  if (error && error != http::error::need_more) {
    in.record.id = service_.new_id("req_");
    in.headers.emplace_back("x-request-id", in.record.id);
    Response response = closing(in.error(malformed(error)));
    co_await send(in, std::move(response));
    finish_record(in);
    co_return false;
  }
  co_return true;
}

asio::awaitable<bool> Connection::read_body(Incoming& in) {
  const Time deadline = steady_clock::now() + service_.options.body_timeout;
  if (!in.parser.is_done() && buffer_.empty() && in.header(http::field::expect) == "100-continue" && in.framing.version == 11) {
    if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
  }
  in.parser.eager(true);
  while (!in.parser.is_done()) {
    if (buffer_.empty()) {
      const Fill fill = co_await more(deadline);
      if (fill == Fill::kTimeout) {
        Response response = closing(in.error(too_slow("the body of the request")));
        co_await send(in, std::move(response));
      }
      if (fill != Fill::kData) co_return false;
    }
    error_code error;
    const size_t used = in.parser.put(asio::buffer(buffer_), error);
    buffer_.erase(0, used);
    if (error && error != http::error::need_more) {
      Response response = closing(in.error(malformed(error)));
      co_await send(in, std::move(response));
      co_return false;
    }
    // The parser may want more than is here, for example of a chunk's head.
    if (!in.parser.is_done() && used == 0 && !buffer_.empty()) {
      if (co_await more(deadline) != Fill::kData) co_return false;
    }
  }
  co_return true;
}

asio::awaitable<bool> Connection::answer(Incoming& in) {
  const auto& head = in.parser.get();
  in.route = find_route(view(head.target()));
  in.framing = {.version = static_cast<int>(head.version()), .keep_alive = in.parser.keep_alive(), .head_only = head.method() == http::verb::head};
  in.record.endpoint = endpoint_name(in.route.endpoint);
  in.shape = error_shape(in);
  const std::string_view given_id = in.header("x-request-id");
  in.record.id = is_request_id(given_id) ? std::string(given_id) : service_.new_id("req_");
  add_common_headers(in);
  std::optional<Response> refusal = check_head(in);
  if (!refusal) refusal = check_size(in);
  if (refusal) {
    // A small body is read all the same, and the connection stays in order; a large one is left where it is.
    if (!in.parser.is_done() && in.may_skip_body()) {
      const bool skipped = co_await read_body(in);
      if (!skipped) co_return false;
    }
    refusal->close = refusal->close || !in.parser.is_done();
    co_return co_await send(in, std::move(*refusal));
  }
  if (!co_await read_body(in)) co_return false;
  if (answers_at_once(in.route.endpoint)) {
    Response response = small_answer(in);
    co_return co_await send(in, std::move(response));
  }
  Call call{.endpoint = in.route.endpoint,
            .remove = head.method() == http::verb::delete_,
            .id = in.route.id,
            .query = std::string(in.route.query),
            .body = std::move(in.parser.get().body()),
            .tenant = in.tenant,
            .retention = std::string(in.header("x-deepinfer-retention"))};
  if (service_.options.log.with_bodies) in.record.body = call.body;
  Prepared prepared = co_await prepare_elsewhere(std::move(call));
  in.release();
  in.record.model = std::move(prepared.model);
  Outcome& outcome = prepared.outcome;
  if (const ApiError* error = std::get_if<ApiError>(&outcome)) outcome = in.error(*error);
  if (Response* response = std::get_if<Response>(&outcome)) co_return co_await send(in, std::move(*response));
  in.framing.keep_alive = in.framing.keep_alive && !closing_ && !service_.draining;
  GenerationRun run(*this, std::move(std::get<Generation>(outcome)), in.framing, in.headers, in.shape, in.arrived, in.record);
  co_return co_await run.run();
}

// Everything that can be said before a body is read. nullopt: go on.
std::optional<Response> Connection::check_head(Incoming& in) const {
  const auto& head = in.parser.get();
  if (in.framing.version != 10 && in.framing.version != 11) {
    ApiError error = malformed(http::error::bad_version);
    error.status = 505;
    return closing(in.error(error));
  }
  if (head.method() == http::verb::options && !service_.options.cors_origins.empty()) {
    Response preflight{.status = 204, .content_type = ""};
    preflight.headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"}, {"Access-Control-Max-Age", "86400"}};
    const std::string_view asked = in.header(http::field::access_control_request_headers);
    if (!asked.empty() && is_header_list(asked)) preflight.headers.emplace_back("Access-Control-Allow-Headers", asked);
    return preflight;
  }
  if (service_.options.keys.required() && needs_key(in.route.endpoint)) {
    const std::string_view key = presented_key(in.header(http::field::authorization), in.header("x-api-key"));
    std::optional<std::string> tenant = service_.options.keys.tenant_of(key);
    if (!tenant) return in.error(missing_key(!key.empty()));
    in.tenant = std::move(*tenant);
  }
  if (in.route.endpoint == Endpoint::kUnknown) {
    return in.error(not_found(in.route.known_elsewhere ? "this path is not supported by this model server"
                                                       : fmt::format("there is nothing at {}", recipe::quotable(view(head.target()), 256))));
  }
  if (!allows(in.route.endpoint, view(head.method_string()))) {
    const std::string_view allowed = allowed_methods(in.route.endpoint);
    ApiError error = bad_request(fmt::format("this path takes {} only", allowed));
    error.status = 405;
    error.code = "method_not_allowed";
    Response response = in.error(error);
    response.headers.emplace_back("Allow", allowed);
    return response;
  }
  return std::nullopt;
}

// Reserves room for a large body. The limit of one body is the parser's business.
std::optional<Response> Connection::check_size(Incoming& in) {
  const size_t limit = service_.options.max_body_bytes;
  const size_t expected = in.parser.chunked() ? limit : static_cast<size_t>(in.parser.content_length().value_or(0));
  if (expected <= kUncountedBody) return std::nullopt;
  in.reserved = std::min(expected, limit);
  if (service_.pending_body_bytes.fetch_add(in.reserved) + in.reserved <= std::max(service_.options.max_pending_body_bytes, limit)) {
    return std::nullopt;
  }
  return in.error(overloaded("too many large requests at once"));
}

// Clients of Messages say so by this header wherever they go; where both kinds of clients come it decides.
ErrorShape Connection::error_shape(const Incoming& in) {
  const bool both = !protocol_of(in.route.endpoint) && !in.header("anthropic-version").empty();
  return both ? ErrorShape::kAnthropic : in.route.shape;
}

Response Connection::small_answer(const Incoming& in) const {
  switch (in.route.endpoint) {
    case Endpoint::kModels: return models_response(service_, in.shape);
    case Endpoint::kModel: {
      std::variant<Response, ApiError> model = model_response(service_, in.route.id, in.shape);
      if (const ApiError* error = std::get_if<ApiError>(&model)) return in.error(*error);
      return std::move(std::get<Response>(model));
    }
    case Endpoint::kOpenApi: return {.body = std::string(openapi_document())};
    case Endpoint::kMetrics:
      return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = service_.metrics.text(service_.inference.stats())};
    case Endpoint::kReady:
      if (service_.queue_is_full(/*num_own=*/0)) {
        return in.error(queue_full(retry_after_seconds(service_.inference.stats().estimated_queue_seconds)));
      }
      [[fallthrough]];
    default: return service_.draining ? in.error(draining()) : Response{.body = "{}"};
  }
}

asio::awaitable<void> Connection::on_worker(std::function<void()> work) {
  const auto done = std::make_shared<bool>(false);
  asio::post(service_.workers, [self = shared_from_this(), done, work = std::move(work)]() mutable {
    if (!self->service_.stopping) work();
    const asio::any_io_executor executor = self->transport_.executor();
    asio::post(executor, [self = std::move(self), done, work = std::move(work)] {
      *done = true;
      self->signal();
    });
  });
  while (!*done) co_await wait_until(Time::max());
}

asio::awaitable<Prepared> Connection::prepare_elsewhere(Call call) {
  const auto prepared = std::make_shared<Prepared>();
  service_.num_preparing += 1;
  std::function<void()> work = [&service = service_, prepared, call = std::move(call)]() mutable {
    try {
      *prepared = prepare(service, std::move(call));
    } catch (const std::exception&) {
      prepared->outcome = internal_error("the request could not be prepared");
    }
  };
  co_await on_worker(std::move(work));
  service_.num_preparing -= 1;
  co_return std::move(*prepared);
}

asio::awaitable<bool> Connection::send(Incoming& in, Response response) {
  response.headers.insert(response.headers.begin(), in.headers.begin(), in.headers.end());
  in.record.status = response.status;
  in.record.error = response.error;
  unread_ = unread_ || !in.parser.is_done();
  in.framing.keep_alive = in.framing.keep_alive && !response.close && !closing_;
  co_return co_await write(format_response(response, in.framing)) && in.framing.keep_alive;
}

void Connection::add_common_headers(Incoming& in) const {
  in.headers.emplace_back("x-request-id", in.record.id);
  if (in.shape == ErrorShape::kAnthropic) in.headers.emplace_back("request-id", in.record.id);
  const std::vector<std::string>& origins = service_.options.cors_origins;
  if (origins.empty()) return;
  const std::string_view origin = in.header(http::field::origin);
  const bool all = std::find(origins.begin(), origins.end(), "*") != origins.end();
  if (all) {
    in.headers.emplace_back("Access-Control-Allow-Origin", "*");
  } else {
    in.headers.emplace_back("Vary", "Origin");
    if (std::find(origins.begin(), origins.end(), origin) == origins.end()) return;
    in.headers.emplace_back("Access-Control-Allow-Origin", origin);
  }
  in.headers.emplace_back("Access-Control-Expose-Headers", "x-request-id, request-id, retry-after");
}

void Connection::finish_record(Incoming& in) {
  if (in.record.status == 0) in.record.status = 499;
  in.record.e2e_ms = std::chrono::duration<double, std::milli>(steady_clock::now() - in.arrived).count();
  service_.metrics.response_sent(in.record.endpoint, in.record.status);
  const Endpoint endpoint = in.route.endpoint;
  if (protocol_of(endpoint) && in.record.finish.empty()) service_.metrics.request_ended(in.record.endpoint, "refused");
  // Probes and scrapes come every few seconds for ever; in the log they would hide the requests.
  const bool probe = endpoint == Endpoint::kHealth || endpoint == Endpoint::kReady || endpoint == Endpoint::kMetrics;
  if (!probe || in.record.status >= 500) service_.options.log.add(in.record);
}

}  // namespace deepinfer::api
