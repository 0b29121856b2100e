#include "api/transport.h"

#include <boost/asio/write.hpp>

namespace deepinfer::api {

Transport::Transport(Tcp::socket socket, asio::ssl::context* tls) {
  error_code ignored;
  socket.set_option(Tcp::no_delay(true), ignored);  // a token must not wait for the next one
  if (tls != nullptr) {
    stream_.emplace(std::move(socket), *tls);
  } else {
    plain_.emplace(std::move(socket));
  }
}

asio::awaitable<error_code> Transport::handshake() {
  if (!stream_) co_return error_code();
  const auto [error] = co_await stream_->async_handshake(asio::ssl::stream_base::server, kAwait);
  co_return error;
}

void Transport::async_read_some(asio::mutable_buffer into, std::function<void(error_code, size_t)> done) {
  if (stream_) {
    stream_->async_read_some(into, std::move(done));
  } else {
    plain_->async_read_some(into, std::move(done));
  }
}

asio::awaitable<error_code> Transport::write(std::string_view data) {
  const asio::const_buffer buffer(data.data(), data.size());
  if (stream_) {
    const auto [error, size] = co_await asio::async_write(*stream_, buffer, kAwait);
    co_return error;
  }
  const auto [error, size] = co_await asio::async_write(*plain_, buffer, kAwait);
  co_return error;
}

asio::awaitable<void> Transport::shutdown() {
  if (stream_) {
    // Sends the close notice; waiting for the client's is cut short by the caller's deadline, which closes the socket.
    co_await stream_->async_shutdown(kAwait);
  }
  error_code ignored;
  socket().shutdown(Tcp::socket::shutdown_send, ignored);
}

void Transport::close() {
  error_code ignored;
  socket().close(ignored);
}

}  // namespace deepinfer::api
