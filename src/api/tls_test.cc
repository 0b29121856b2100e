// The same server behind TLS. The certificate in tests/http is self-signed for localhost and serves tests only.
#include <gtest/gtest.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

#include "api/server.h"
#include "eventually.h"
#include "http/fake_model.h"
#include "http/raw_client.h"

namespace deepinfer::api {
namespace {

using namespace testing_support;
namespace asio = boost::asio;
using Stream = asio::ssl::stream<asio::ip::tcp::socket>;

struct TlsWorld {
  TlsWorld() {
    const std::string folder = DI_SOURCE_DIR "/tests/http/";
    Result<std::unique_ptr<Server>> started = Server::start({.port = 0, .tls_cert = folder + "localhost_cert.pem", .tls_key = folder + "localhost_key.pem"},
                                                            {.inference = inference, .tokenizer = tokenizer, .renderer = &renderer});
    EXPECT_TRUE(started) << started.error().message;
    server = std::move(*started);
    tls.load_verify_file(folder + "localhost_cert.pem");
    tls.set_verify_mode(asio::ssl::verify_peer);
  }
  void connect(Stream& stream) {
    stream.next_layer().connect({asio::ip::make_address("127.0.0.1"), server->port()});
    stream.handshake(Stream::client);
  }

  FakeTokenizer tokenizer;
  FakeRenderer renderer;
  FakeInference inference{{.script = [](const Request&, int32_t) { return tokens_of("x", false); }, .step = std::chrono::microseconds(500), .max_context = 1000000}};
  std::unique_ptr<Server> server;
  asio::io_context context;
  asio::ssl::context tls{asio::ssl::context::tls_client};
};

std::string read_until(Stream& stream, std::string_view mark) {
  std::string out;
  char chunk[4096];
  boost::system::error_code error;
  while (!error && out.find(mark) == std::string::npos) out.append(chunk, stream.read_some(asio::buffer(chunk), error));
  return out;
}

constexpr std::string_view kBody = R"({"model":"fake","messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":50})";

TEST(Tls, StreamsAndKeepsTheConnection) {
  TlsWorld world;
  Stream stream(world.context, world.tls);
  world.connect(stream);
  for (int i = 0; i < 2; ++i) {
    asio::write(stream, asio::buffer(post("/v1/chat/completions", kBody)));
    const std::string answer = read_until(stream, "0\r\n\r\n");
    EXPECT_EQ(answer.substr(0, 15), "HTTP/1.1 200 OK");
    EXPECT_NE(answer.find("data: [DONE]"), std::string::npos);
  }
  EXPECT_TRUE(world.inference.cancel_calls().empty());
}

TEST(Tls, AHangUpCancels) {
  TlsWorld world;
  {
    Stream stream(world.context, world.tls);
    world.connect(stream);
    asio::write(stream, asio::buffer(post("/v1/chat/completions", R"({"model":"fake","messages":[{"role":"user","content":"hi"}],"stream":true})")));
    EXPECT_NE(read_until(stream, "\"content\":\"x\"").find("200 OK"), std::string::npos);
  }
  EXPECT_TRUE(eventually([&] { return world.inference.num_live() == 0; }));
  EXPECT_EQ(world.inference.cancel_calls().size(), 1u);
}

TEST(Tls, PlainTextIsTurnedAway) {
  TlsWorld world;
  RawClient client(world.server->port());
  client.send(get("/health"));
  EXPECT_TRUE(client.wait_closed());
  Stream stream(world.context, world.tls);
  world.connect(stream);
  asio::write(stream, asio::buffer(get("/health", "Connection: close\r\n")));
  EXPECT_NE(read_until(stream, "{}").find("200 OK"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer::api
