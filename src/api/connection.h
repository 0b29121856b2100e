// One client connection: reads requests, sends answers, notices when the client goes away. A single coroutine on one io thread does
// everything in turn; whatever else happens (bytes arrived, tokens arrived, a worker is done, the server stops) only signals it.
//
// Reading is a pump that may run ahead of the parser: while an answer is being made, a read stays pending, so that a hang-up is seen
// at once and a pipelined request is kept for later. Lost: cancelling that read between requests, which can lose bytes under TLS.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/http_message.h"
#include "api/prepare.h"
#include "api/request_log.h"
#include "api/service.h"
#include "api/transport.h"

namespace deepinfer::api {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Connection(Service& service, Transport transport);

  // Serves until either side is done. Throws nothing.
  asio::awaitable<void> run();
  // Tells one client that there is no room, without reading its request.
  asio::awaitable<void> refuse();

  // From the server, on this connection's thread.
  void on_drain();  // ends now if no request is being read or answered, else after this one
  void on_abort();  // ends the request too
  void close();

  // --- for whoever answers a request
  asio::awaitable<bool> write(std::string_view data);  // false: the client is gone or too slow
  asio::awaitable<void> wait_until(Time deadline);     // returns at the deadline, or earlier for any signal
  // Runs `work`, which must not throw, on a worker, and returns when it is done; it is skipped when the server is stopping.
  asio::awaitable<void> on_worker(std::function<void()> work);
  std::function<void()> waker();                       // signals from any thread, also when this is long gone
  void watch();                                        // keeps a read pending
  bool gone() const { return gone_ || read_error_; }
  bool aborted() const { return aborted_; }
  Service& service() { return service_; }

 private:
  struct Incoming;
  enum class Fill : uint8_t { kData, kClosed, kTimeout };

  asio::awaitable<void> serve();
  asio::awaitable<Fill> more(Time deadline);
  asio::awaitable<bool> read_head(Incoming& in);
  asio::awaitable<bool> read_body(Incoming& in);
  asio::awaitable<bool> answer(Incoming& in);
  asio::awaitable<Prepared> prepare_elsewhere(Call call);
  asio::awaitable<bool> send(Incoming& in, Response response);
  asio::awaitable<void> linger();

  std::optional<Response> check_head(Incoming& in) const;
  std::optional<Response> check_size(Incoming& in);
  static ErrorShape error_shape(const Incoming& in);
  Response small_answer(const Incoming& in) const;
  void add_common_headers(Incoming& in) const;
  void finish_record(Incoming& in);
  void start_read();
  void signal();
  // Closes the connection when `timeout` has passed; disarm() before that.
  void arm(std::chrono::milliseconds timeout);
  void disarm();

  Service& service_;
  Transport transport_;
  asio::steady_timer signal_;    // what the coroutine waits on; cancelled by signal()
  asio::steady_timer watchdog_;  // arm()
  uint64_t watchdog_round_ = 0;
  std::string buffer_;           // read, not yet parsed
  std::array<char, 16 << 10> chunk_;
  bool read_pending_ = false, read_error_ = false, gone_ = false;
  bool idle_ = false;            // between requests
  bool unread_ = false;          // a request was answered before all of it was read
  bool closing_ = false, aborted_ = false;
};

}  // namespace deepinfer::api
