// Images by URL, from a server on loopback that says what a test wants. Loopback is no place that images may come from: tests allow it.
#include "api/image_fetch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>

#include "base/base64.h"
#include "http/world.h"

namespace deepinfer::api {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using namespace std::chrono_literals;

bool anywhere(const asio::ip::address&) { return true; }

// Answers every connection with the same bytes, and keeps what was asked. Closes the connection unless it is to hang.
class CannedServer {
 public:
  explicit CannedServer(std::string answer, bool hang = false, bool tls = false) : answer_(std::move(answer)), hang_(hang) {
    if (tls) {
      const std::string folder = DI_SOURCE_DIR "/tests/http/";
      tls_.emplace(asio::ssl::context::tls_server);
      tls_->use_certificate_chain_file(folder + "localhost_cert.pem");
      tls_->use_private_key_file(folder + "localhost_key.pem", asio::ssl::context::pem);
    }
    thread_ = std::thread([this] { run(); });
  }
  ~CannedServer() {
    quit_ = true;
    boost::system::error_code ignored;
    Tcp::socket(context_).connect(acceptor_.local_endpoint(), ignored);  // ends its accept
    thread_.join();
  }
  std::string host() const { return fmt::format("localhost:{}", acceptor_.local_endpoint().port()); }
  const std::string& asked() const { return asked_; }  // once its answer is here
  int num_connections() const { return num_connections_; }

 private:
  void run() {
    while (true) {
      boost::system::error_code error;
      Tcp::socket socket = acceptor_.accept(error);
      if (quit_ || error) return;
      num_connections_ += 1;
      if (tls_) {
        asio::ssl::stream<Tcp::socket> stream(std::move(socket), *tls_);
        stream.handshake(asio::ssl::stream_base::server, error);
        if (!error) serve(stream);
      } else {
        serve(socket);
      }
    }
  }
  template <class Stream>
  void serve(Stream& stream) {
    boost::system::error_code error;
    char chunk[4096];
    std::string request;
    while (!error && request.find("\r\n\r\n") == std::string::npos) request.append(chunk, stream.read_some(asio::buffer(chunk), error));
    asked_ = request;
    asio::write(stream, asio::buffer(answer_), error);
    while (hang_ && !quit_ && !error) stream.read_some(asio::buffer(chunk), error);
  }

  const std::string answer_;
  const bool hang_;
  asio::io_context context_;
  Tcp::acceptor acceptor_{context_, Tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0)};
  std::optional<asio::ssl::context> tls_;
  std::atomic<bool> quit_ = false;
  std::atomic<int> num_connections_ = 0;
  std::string asked_;
  std::thread thread_;
};

std::string answer_of(std::string_view status, std::string_view body, std::string_view headers = "") {
  return fmt::format("HTTP/1.1 {}\r\n{}Content-Length: {}\r\n\r\n{}", status, headers, body.size(), body);
}

ImageFetchOptions from(const CannedServer& server) { return {.hosts = {server.host()}, .max_bytes = 1000, .timeout = 5000ms, .allows = anywhere}; }

TEST(ImageFetch, ANameThatTakesLongIsNotWaitedFor) {
  ImageFetchOptions options{.hosts = {"slow.example"}, .timeout = 50ms, .allows = anywhere, .look_up = [](const std::string&) {
    std::this_thread::sleep_for(2s);
    return HostAddresses();
  }};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(fetch_image("https://slow.example/a.png", options).error().code, Code::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1500ms);
  options.timeout = 10s;
  options.look_up = [](const std::string&) { return HostAddresses{.found = {}, .error = "no such host"}; };
  EXPECT_EQ(fetch_image("https://slow.example/a.png", options).error().message, "the image could not be fetched: slow.example: no such host");
}

TEST(ImageFetch, BringsTheBytes) {
  const CannedServer server(answer_of("200 OK", "picture"));
  const Result<std::string> got = fetch_image("http://" + server.host() + "/a/b.png?size=1#part", from(server));
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(*got, "picture");
  EXPECT_TRUE(server.asked().starts_with("GET /a/b.png?size=1 HTTP/1.1\r\nHost: " + server.host() + "\r\n")) << server.asked();
}

TEST(ImageFetch, RefusesWhatIsNotAllowed) {
  const CannedServer server(answer_of("200 OK", "picture"));
  ImageFetchOptions options = from(server);
  const std::string port = server.host().substr(server.host().find(':') + 1);
  for (const std::string& url : {std::string("ftp://localhost/x"), std::string("http://"), std::string("file:///etc/passwd"), "http://127.0.0.1:" + port + "/",
                                 std::string("http://localhost/"), "https://other.example:" + port + "/", "http://user@" + server.host() + "/",
                                 "http://localhost:" + port + "0/", std::string("http://localhost:99999/"), "http://" + server.host() + "/a b",
                                 "http://" + server.host() + "/a\r\nX: y", "http://[::1]:" + port + "/", "http://localhost%2e:" + port + "/"}) {
    const Result<std::string> got = fetch_image(url, options);
    ASSERT_FALSE(got) << url;
    EXPECT_EQ(got.error().code, Code::kInvalidArgument) << url << ": " << got.error().message;
  }
  options.allows = is_public_address;  // a host of the list whose name leads inside
  EXPECT_EQ(fetch_image("http://" + server.host() + "/", options).error().message, "the image could not be fetched: localhost has no public address");
  EXPECT_EQ(server.num_connections(), 0);
}

TEST(ImageFetch, IsBoundedInSizeAndTime) {
  const CannedServer large(answer_of("200 OK", std::string(1001, 'x')));
  EXPECT_EQ(fetch_image("http://" + large.host() + "/", from(large)).error().code, Code::kInvalidArgument);
  const CannedServer lying("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" + std::string(0x800, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(fetch_image("http://" + lying.host() + "/", from(lying)).error().code, Code::kInvalidArgument);
  const CannedServer silent("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", true);
  ImageFetchOptions options = from(silent);
  options.timeout = 200ms;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(fetch_image("http://" + silent.host() + "/", options).error().code, Code::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
}

TEST(ImageFetch, SaysWhoseFaultItIs) {
  const auto code_of = [](const std::string& answer) {
    const CannedServer server(answer);
    return fetch_image("http://" + server.host() + "/", from(server)).error().code;
  };
  EXPECT_EQ(code_of(answer_of("404 Not Found", "")), Code::kInvalidArgument);
  EXPECT_EQ(code_of(answer_of("302 Found", "", "Location: http://127.0.0.1/\r\n")), Code::kInvalidArgument);
  EXPECT_EQ(code_of(answer_of("503 Service Unavailable", "")), Code::kIo);
  EXPECT_EQ(code_of("what?"), Code::kIo);
  EXPECT_EQ(code_of(""), Code::kIo);
  EXPECT_EQ(code_of("HTTP/1.1 200 OK\r\nX: " + std::string(20000, 'x') + "\r\n\r\n"), Code::kIo);
}

TEST(ImageFetch, ChecksCertificates) {
  const CannedServer server(answer_of("200 OK", "picture"), false, true);
  const std::string url = "https://" + server.host() + "/";
  EXPECT_EQ(fetch_image(url, from(server)).error().code, Code::kIo) << "nobody vouches for it";
  ::setenv("SSL_CERT_FILE", DI_SOURCE_DIR "/tests/http/localhost_cert.pem", 1);
  const Result<std::string> got = fetch_image(url, from(server));
  ::unsetenv("SSL_CERT_FILE");
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(*got, "picture");
}

TEST(ImageFetch, KnowsThePublicInternet) {
  const auto is_public = [](const char* text) { return is_public_address(asio::ip::make_address(text)); };
  for (const char* inside : {"0.0.0.0", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.9.9.9", "169.254.169.254", "172.16.0.1", "172.31.255.255",
                             "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.9", "224.0.0.1",
                             "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "fc00::1",
                             "fd12::1", "fe80::1", "fec0::1", "ff02::1", "2001::1", "2001:2::1", "2001:10::1", "2001:1ff:ffff::1", "2001:db8::1", "2001:20::1", "::127.0.0.1", "5f00::1", "2002:7f00:1::", "2002:a00:1::", "3fff::1", "100::1"}) {
    EXPECT_FALSE(is_public(inside)) << inside;
  }
  for (const char* outside : {"1.1.1.1", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "126.1.1.1", "128.0.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1",
                              "198.17.0.1", "198.20.0.1", "223.255.255.255", "2606:4700::1111", "2001:200::1", "2001:4860:4860::8888", "::ffff:8.8.8.8", "2002:808:808::"}) {
    EXPECT_TRUE(is_public(outside)) << outside;
  }
}

// Through the whole server: an allowed host in each protocol, and what clients are told.
TEST(ImageFetch, ServesRequests) {
  using namespace testing_support;
  const CannedServer images(answer_of("200 OK", "image 6")), broken(answer_of("500 Internal Server Error", "")), absent(answer_of("404 Not Found", ""));
  ServerOptions options;
  options.image_fetch = {.hosts = {images.host(), broken.host(), absent.host()}, .allows = anywhere};
  World world({.vision = true}, std::move(options));
  RawClient client(world.port());
  const auto ask = [&](const std::string& host) {
    return client.request(post(kChat, fmt::format(R"({{"model":"fake","messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"http://{}/x"}}}}]}}]}})", host)));
  };
  EXPECT_EQ(ask(images.host())->status, 200);
  ASSERT_EQ(world.inference.requests().back().images.size(), 1u);
  EXPECT_EQ(world.inference.requests().back().images[0].image->num_tokens, 6);
  expect_error(ask(absent.host()), 400, "invalid_request_error", "messages[0].content[0]: the image could not be fetched: its server answered with status 404");
  const auto fault = ask(broken.host());
  expect_error(fault, 500, "internal_error", "status 500");
  EXPECT_EQ(fault->headers.count("x-should-retry"), 0u) << "the next try may find that server well";
  expect_error(ask("elsewhere.example"), 400, "invalid_request_error", "images of elsewhere.example are not fetched here");
}

}  // namespace
}  // namespace deepinfer::api
