#include "api/server.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "api/connection.h"
#include "api/service.h"

namespace deepinfer::api {
namespace {

using std::chrono::milliseconds;
constexpr int32_t kMaxRefusals = 64;         // connections that are being told there is no room
constexpr milliseconds kAcceptPause{100};    // after accept() failed, mostly for want of file descriptors
constexpr milliseconds kAbortTime{2000};     // for cancelled requests to tell their clients

// One io thread and the connections on it; `connections` is touched on that thread only.
struct IoThread {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  std::set<Connection*> connections;
  std::thread thread;
};

Result<std::unique_ptr<asio::ssl::context>> load_tls(const ServerOptions& options) {
  if (options.tls_cert.empty() && options.tls_key.empty()) return std::unique_ptr<asio::ssl::context>();
  if (options.tls_cert.empty() || options.tls_key.empty()) {
    return Error{Code::kInvalidArgument, "TLS needs both a certificate and a key"};
  }
  auto tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code error;
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 | asio::ssl::context::no_sslv3 |
                       asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, error);
  if (!error) tls->use_certificate_chain_file(options.tls_cert, error);
  if (error) return Error{Code::kInvalidArgument, fmt::format("cannot use the TLS certificate {}: {}", options.tls_cert, error.message())};
  tls->use_private_key_file(options.tls_key, asio::ssl::context::pem, error);
  if (error) return Error{Code::kInvalidArgument, fmt::format("cannot use the TLS key {}: {}", options.tls_key, error.message())};
  return tls;
}

Result<Tcp::endpoint> resolve(asio::io_context& context, const ServerOptions& options) {
  error_code error;
  const asio::ip::address address = asio::ip::make_address(options.address, error);
  if (!error) return Tcp::endpoint(address, options.port);
  Tcp::resolver resolver(context);
  const auto found = resolver.resolve(options.address, std::to_string(options.port), error);
  if (error || found.empty()) return Error{Code::kInvalidArgument, fmt::format("\"{}\" is no address of this machine", options.address)};
  return found.begin()->endpoint();
}

}  // namespace

struct Server::Impl {
  Impl(ServerOptions options, const ServerParts& parts, uint64_t id_key, std::unique_ptr<ResponseStore> store)
      : service(std::move(options), parts, id_key, std::move(store)) {
    for (int32_t i = 0; i < service.options.num_io_threads; ++i) threads.push_back(std::make_unique<IoThread>());
  }

  Result<> listen();
  asio::awaitable<void> accept_loop();
  void take(IoThread& io, Tcp::socket socket);
  asio::awaitable<void> serve(IoThread& io, Tcp::socket socket, bool room);
  void for_each_connection(void (Connection::*what)());
  bool wait_until_empty(std::chrono::steady_clock::time_point deadline, bool obey_stop);
  void stop_threads();

  Service service;
  std::unique_ptr<asio::ssl::context> tls;
  std::vector<std::unique_ptr<IoThread>> threads;
  std::optional<Tcp::acceptor> acceptor;  // of the first thread
  uint16_t port = 0;
  size_t next_thread = 0;

  std::mutex mu;
  std::condition_variable changed;
  int32_t num_connections = 0;  // under mu, with num_refusals and stop
  int32_t num_refusals = 0;
  bool stop = false;
  bool ended = false;           // drain() is done; the owner's thread only
};

Result<> Server::Impl::listen() {
  DI_TRY(tls, load_tls(service.options));
  asio::io_context& context = threads.front()->context;
  DI_TRY(const Tcp::endpoint endpoint, resolve(context, service.options));
  acceptor.emplace(context);
  error_code error;
  acceptor->open(endpoint.protocol(), error);
  if (!error) acceptor->set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  if (error) return Error{Code::kIo, fmt::format("cannot listen on {} port {}: {}", service.options.address, service.options.port, error.message())};
  port = acceptor->local_endpoint(error).port();
  asio::co_spawn(context, accept_loop(), asio::detached);
  for (const std::unique_ptr<IoThread>& io : threads) {
    io->thread = std::thread([&context = io->context] { context.run(); });
  }
  return {};
}

asio::awaitable<void> Server::Impl::accept_loop() {
  while (acceptor->is_open()) {
    IoThread& io = *threads[next_thread];
    auto [error, socket] = co_await acceptor->async_accept(io.context, kAwait);
    if (!acceptor->is_open()) co_return;
    if (error) {
      asio::steady_timer pause(acceptor->get_executor(), kAcceptPause);
      co_await pause.async_wait(kAwait);
      continue;
    }
    next_thread = (next_thread + 1) % threads.size();
    take(io, std::move(socket));
  }
}

// Counts the connection in before it is handed to its thread, so that a burst cannot pass the limit.
void Server::Impl::take(IoThread& io, Tcp::socket socket) {
  bool room;
  {
    const std::lock_guard lock(mu);
    room = num_connections < service.options.max_connections;
    if (!room && (num_refusals >= kMaxRefusals || tls)) return;  // closes the socket
    (room ? num_connections : num_refusals) += 1;
    service.metrics.connections(num_connections);
  }
  asio::co_spawn(io.context, serve(io, std::move(socket), room), asio::detached);
}

asio::awaitable<void> Server::Impl::serve(IoThread& io, Tcp::socket socket, bool room) {
  {
    const auto connection = std::make_shared<Connection>(service, Transport(std::move(socket), room ? tls.get() : nullptr));
    io.connections.insert(connection.get());
    if (service.draining) connection->on_drain();
    // No conditional expression here: g++ 12 destroys the coroutine that it picks twice.
    if (room) {
      co_await connection->run();
    } else {
      co_await connection->refuse();
    }
    io.connections.erase(connection.get());
  }
  const std::lock_guard lock(mu);
  (room ? num_connections : num_refusals) -= 1;
  service.metrics.connections(num_connections);
  changed.notify_all();
}

void Server::Impl::for_each_connection(void (Connection::*what)()) {
  for (const std::unique_ptr<IoThread>& io : threads) {
    asio::post(io->context, [&connections = io->connections, what] {
      for (Connection* connection : connections) (connection->*what)();  // ends nobody's loop: coroutines go on later
    });
  }
}

bool Server::Impl::wait_until_empty(std::chrono::steady_clock::time_point deadline, bool obey_stop) {
  std::unique_lock lock(mu);
  changed.wait_until(lock, deadline, [&] { return num_connections == 0 || (obey_stop && stop); });
  return num_connections == 0;
}

void Server::Impl::stop_threads() {
  for (const std::unique_ptr<IoThread>& io : threads) io->context.stop();
  for (const std::unique_ptr<IoThread>& io : threads) {
    if (io->thread.joinable()) io->thread.join();
  }
  // Workers empty their queue, for what waits there holds connections, which must be gone before their io thread's context is.
  service.stopping = true;
  service.workers.join();
  // What is still suspended ends here: its destructors close mailboxes and cancel requests.
  acceptor.reset();
  threads.clear();
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Server>> Server::start(ServerOptions options, const ServerParts& parts) {
  uint64_t id_key = 0;
  if (getrandom(&id_key, sizeof(id_key), 0) != sizeof(id_key)) return Error{Code::kIo, "the system gives no random numbers"};
  std::unique_ptr<ResponseStore> store;
  if (options.response_store) {
    DI_TRY(store, ResponseStore::open(*options.response_store));
  }
  std::unique_ptr<Server> server(new Server(std::make_unique<Impl>(std::move(options), parts, id_key, std::move(store))));
  DI_TRY(server->impl_->listen());
  return server;
}

Server::~Server() {
  stop_now();
  drain();
}

uint16_t Server::port() const { return impl_->port; }

void Server::drain() {
  Impl& impl = *impl_;
  if (impl.ended) return;
  impl.ended = true;
  impl.service.draining = true;
  const auto deadline = std::chrono::steady_clock::now() + impl.service.options.drain_timeout;
  asio::post(impl.threads.front()->context, [&impl] {
    error_code ignored;
    if (impl.acceptor) impl.acceptor->close(ignored);
  });
  impl.service.inference.drain();
  impl.for_each_connection(&Connection::on_drain);
  if (!impl.wait_until_empty(deadline, /*obey_stop=*/true)) {
    impl.for_each_connection(&Connection::on_abort);
    impl.wait_until_empty(std::chrono::steady_clock::now() + kAbortTime, /*obey_stop=*/false);
  }
  impl.stop_threads();
}

void Server::stop_now() {
  const std::lock_guard lock(impl_->mu);
  impl_->stop = true;
  impl_->changed.notify_all();
}

}  // namespace deepinfer::api
