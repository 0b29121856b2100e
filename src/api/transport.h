// One client socket, plain or TLS, behind the same three operations, so that nothing above knows which. All operations are awaited on
// the socket's own executor and report error codes; at most one read and one write are pending at a time.
// Lost: templates over the stream type, which double every line of the connection in the binary.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

namespace deepinfer::api {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;
inline constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);  // errors are looked at, never thrown

class Transport {
 public:
  // tls: nullptr for a plain connection; outlives this.
  Transport(Tcp::socket socket, asio::ssl::context* tls);

  asio::awaitable<error_code> handshake();  // nothing to do for a plain connection
  // Calls done(ec, num_bytes) later, never from within.
  void async_read_some(asio::mutable_buffer into, std::function<void(error_code, size_t)> done);
  asio::awaitable<error_code> write(std::string_view data);  // all of it
  asio::awaitable<void> shutdown();  // says that nothing more will be written; errors do not matter any more
  void close();                      // pending operations end with an error

  bool is_tls() const { return stream_.has_value(); }
  asio::any_io_executor executor() { return socket().get_executor(); }

 private:
  Tcp::socket& socket() { return stream_ ? stream_->next_layer() : *plain_; }

  std::optional<Tcp::socket> plain_;
  std::optional<asio::ssl::stream<Tcp::socket>> stream_;
};

}  // namespace deepinfer::api
