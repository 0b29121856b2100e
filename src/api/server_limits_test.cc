// Where the server ends: sizes, queues, slow and vanishing clients, shutting down.
#include <atomic>
#include <map>

#include "base/clock.h"
#include "base/rng.h"
#include "http/world.h"

namespace deepinfer::api {
namespace {

using namespace testing_support;

TEST(ServerLimits, LimitsOfSize) {
  World world({}, {.max_body_bytes = 1000});
  {
    RawClient client(world.port());
    expect_error(client.request(post(kChat, std::string(1001, ' '))), 413, "request_too_large");
    EXPECT_TRUE(client.wait_closed());
  }
  {
    RawClient client(world.port());
    client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + std::string(2000, ' '));
    expect_error(client.answer(), 413, "request_too_large");
  }
  {
    RawClient client(world.port());
    expect_error(client.request("GET /health HTTP/1.1\r\nX: " + std::string(20000, 'x') + "\r\n\r\n"), 431, "header_too_large");
  }
  for (const char* bad : {"nonsense\r\n\r\n", "GET /health HTTP/9.9\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
                          "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "GET / HTTP/1.1\r\nBad Header\r\n\r\n"}) {
    RawClient client(world.port());
    const std::optional<Answer> answer = client.request(bad);
    ASSERT_TRUE(answer) << bad;
    EXPECT_EQ(answer->status / 100, 4) << bad;
    EXPECT_TRUE(client.wait_closed()) << bad;
  }
  RawClient client(world.port());
  EXPECT_EQ(client.request(get("/health"))->status, 200);
}

TEST(ServerLimits, ABodyThatNobodyWantsIsNotRead) {
  ServerOptions options;
  options.keys = *ApiKeys::parse("k", "keys");
  World world({}, options);
  RawClient client(world.port());
  client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 30000000\r\n\r\n");
  expect_error(client.answer(), 401, "invalid_api_key");
  EXPECT_TRUE(client.wait_closed());
}

TEST(ServerLimits, AFullQueueSaysWhenToComeBack) {
  World world({.max_waiting = 1, .queue_seconds = 12.3, .paused = true});
  RawClient first(world.port()), second(world.port());
  first.send(post(kChat, chat()));
  ASSERT_TRUE(eventually([&] { return world.inference.num_live() == 1; }));
  const std::optional<Answer> answer = second.request(post(kChat, chat(R"(,"stream":true)")));
  expect_error(answer, 429, "rate_limit_exceeded");
  EXPECT_EQ(answer->headers.at("retry-after"), "13");
  world.inference.resume();
  EXPECT_EQ(first.answer()->status, 200);
}

TEST(ServerLimits, TheServersOwnQueueLimitComesBeforeRendering) {
  World world({.max_running = 0}, {.max_queued_requests = 1});
  RawClient first(world.port()), second(world.port());
  first.send(post(kChat, chat()));
  ASSERT_TRUE(eventually([&] { return world.inference.num_live() == 1; }));
  // One waits, which is the limit: the text that the template would refuse is not even rendered.
  expect_error(second.request(post(kChat, R"({"model":"fake","messages":[{"role":"user","content":"REFUSE"}]})")), 429, "rate_limit_exceeded");
  expect_error(second.request(post(kChat, R"({"model":"fake","messages":[]})")), 400, "invalid_request_error");
  expect_error(second.request(get("/ready")), 429, "rate_limit_exceeded");
  EXPECT_EQ(second.request(get("/health"))->status, 200);
}

TEST(ServerLimits, TooManyConnectionsAreToldSo) {
  World world({}, {.max_connections = 2});
  RawClient first(world.port()), second(world.port());
  EXPECT_EQ(first.request(get("/health"))->status, 200);
  EXPECT_EQ(second.request(get("/health"))->status, 200);
  RawClient third(world.port());
  const std::optional<Answer> answer = third.answer();
  expect_error(answer, 503, "overloaded", "connections");
  EXPECT_EQ(answer->headers.at("retry-after"), "1");
  EXPECT_TRUE(third.wait_closed());
  first.close();
  EXPECT_TRUE(eventually([&] {
    RawClient fourth(world.port());
    const std::optional<Answer> health = fourth.request(get("/health"));
    return health && health->status == 200;
  }));
}

TEST(ServerLimits, AClientThatHangsUpCancelsItsRequestOnce) {
  World world({.script = [](const Request&, int32_t) { return tokens_of("x", false); }, .step = 1ms, .max_context = 1000000});
  {
    RawClient streaming(world.port()), waiting(world.port());
    streaming.send(post(kChat, chat(R"(,"stream":true)")));
    waiting.send(post(kChat, chat(R"(,"n":3)")));
    ASSERT_TRUE(streaming.receive_until("\"content\":\"x\""));
    ASSERT_TRUE(eventually([&] { return world.inference.num_live() == 2; }));
  }
  EXPECT_TRUE(eventually([&] { return world.inference.num_live() == 0; }));
  const std::map<RequestId, int> cancels = world.inference.cancel_calls();
  ASSERT_EQ(cancels.size(), 2u);
  for (const auto& [id, count] : cancels) EXPECT_EQ(count, 1) << id;
  const std::vector<std::string> log = world.wait_log(2);
  ASSERT_EQ(log.size(), 2u);
  for (const std::string& line : log) {
    EXPECT_EQ(json::parse(line).at("status").as_int64(), 499) << line;
    EXPECT_EQ(json::parse(line).at("finish").as_string(), "cancelled") << line;
  }
}

TEST(ServerLimits, AClientThatDoesNotReadIsCutOff) {
  ServerOptions options;
  options.write_timeout = 300ms;
  World world({.script = [](const Request&, int32_t) { return tokens_of("x", false); }, .step = 20us, .max_context = 1000000000}, options);
  RawClient client(world.port(), /*receive_buffer=*/4096);
  // Logprobs make large frames, which soon fill what the kernel holds for the client.
  client.send(post(kChat, chat(R"(,"stream":true,"logprobs":true,"top_logprobs":20)")));
  EXPECT_TRUE(eventually([&] { return world.inference.requests().size() == 1; }));
  EXPECT_TRUE(eventually([&] { return world.inference.num_live() == 0; }));
  EXPECT_EQ(world.inference.cancel_calls().size(), 1u);
  const std::vector<std::string> log = world.wait_log(1);
  ASSERT_EQ(log.size(), 1u);
  EXPECT_NE(log[0].find("too long to read"), std::string::npos) << log[0];
}

TEST(ServerLimits, SlowRequestsTimeOut) {
  ServerOptions options;
  options.header_timeout = options.body_timeout = options.idle_timeout = 150ms;
  World world({}, options);
  {
    RawClient client(world.port());
    EXPECT_TRUE(client.wait_closed()) << "says nothing at all";
    EXPECT_TRUE(client.pending().empty());
  }
  {
    RawClient client(world.port());
    client.send("GET /hea");
    expect_error(client.answer(), 408, "invalid_request_error");
    EXPECT_TRUE(client.wait_closed());
  }
  {
    RawClient client(world.port());
    client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n{\"model\"");
    expect_error(client.answer(), 408, "invalid_request_error", "body");
    EXPECT_TRUE(client.wait_closed());
  }
  RawClient half(world.port());
  half.send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n{\"model\"");
  half.close();
  EXPECT_TRUE(world.inference.requests().empty());
}

TEST(ServerLimits, DrainLetsRunningRequestsFinish) {
  World world({.script = [](const Request&, int32_t) { return tokens_of("x", false); }, .step = 2ms});
  RawClient running(world.port()), idle(world.port());
  EXPECT_EQ(idle.request(get("/ready"))->status, 200);
  running.send(post(kChat, chat(R"(,"max_tokens":100,"stream":true)")));
  ASSERT_TRUE(running.receive_until("\"content\":\"x\""));
  std::thread drain([&] { world.server->drain(); });
  EXPECT_TRUE(idle.wait_closed()) << "idle connections end at once";
  const std::optional<Answer> answer = running.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(streamed_text(answer->body), std::string(100, 'x'));
  EXPECT_TRUE(running.wait_closed());
  drain.join();
  EXPECT_TRUE(world.inference.cancel_calls().empty());
  RawClient late(world.port());
  EXPECT_FALSE(late.connected());
}

TEST(ServerLimits, ADrainThatTakesTooLongCancels) {
  ServerOptions options;
  options.drain_timeout = 50ms;
  World world({.script = [](const Request&, int32_t) { return tokens_of("x", false); }, .step = 2ms, .max_context = 1000000}, options);
  RawClient client(world.port());
  client.send(post(kChat, chat(R"(,"stream":true)")));
  ASSERT_TRUE(client.receive_until("\"content\":\"x\""));
  world.server->drain();
  const std::optional<Answer> answer = client.answer();
  ASSERT_TRUE(answer);
  const std::vector<std::string> list = frames(answer->body);
  EXPECT_NE(list[list.size() - 2].find(R"("code":"overloaded")"), std::string::npos) << list[list.size() - 2];
  EXPECT_EQ(world.inference.cancel_calls().size(), 1u);
}

TEST(ServerLimits, StopNowCutsADrainShort) {
  World world({.paused = true});
  RawClient client(world.port());
  client.send(post(kChat, chat()));
  ASSERT_TRUE(eventually([&] { return world.inference.num_live() == 1; }));
  const auto begin = std::chrono::steady_clock::now();
  std::thread drain([&] { world.server->drain(); });
  std::this_thread::sleep_for(20ms);
  world.server->stop_now();
  drain.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_EQ(client.answer()->status, 503);
}

TEST(ServerLimits, DrainingRefusesNewRequestsOnOpenConnections) {
  World world({.script = [](const Request&, int32_t) { return tokens_of("x", false); }, .step = 2ms});
  RawClient running(world.port()), late(world.port());
  running.send(post(kChat, chat(R"(,"max_tokens":200)")));
  const std::string request = post(kChat, chat());
  late.send(request.substr(0, 50));  // a request is under way
  ASSERT_TRUE(eventually([&] { return world.inference.num_live() == 1; }));
  std::this_thread::sleep_for(50ms);
  std::thread drain([&] { world.server->drain(); });
  std::this_thread::sleep_for(20ms);
  late.send(request.substr(50));
  const std::optional<Answer> answer = late.answer();
  expect_error(answer, 503, "overloaded", "shutting down");
  EXPECT_TRUE(answer->headers.contains("retry-after"));
  EXPECT_EQ(running.answer()->status, 200);
  drain.join();
}

TEST(ServerLimits, StartSaysWhatIsWrong) {
  FakeTokenizer tokenizer;
  FakeInference inference;
  const ServerParts parts{.inference = inference, .tokenizer = tokenizer};
  World world;
  Result<std::unique_ptr<Server>> taken = Server::start({.port = world.port()}, parts);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Code::kIo);
  EXPECT_NE(taken.error().message.find("cannot listen on 127.0.0.1"), std::string::npos);
  EXPECT_FALSE(Server::start({.address = "no such host.", .port = 0}, parts));
  EXPECT_FALSE(Server::start({.port = 0, .tls_cert = "/nonexistent"}, parts));
  EXPECT_FALSE(Server::start({.port = 0, .tls_cert = "/nonexistent", .tls_key = "/nonexistent"}, parts));
  const Result<std::unique_ptr<Server>> bare = Server::start({.port = 0}, parts);
  ASSERT_TRUE(bare);
  RawClient client((*bare)->port());
  expect_error(client.request(post(kChat, chat())), 400, "invalid_request_error", "no chat template");
}

TEST(ServerLimits, IdleServersUseNoProcessorTime) {
  World world({}, {.num_io_threads = 2});
  RawClient client(world.port());
  EXPECT_EQ(client.request(get("/health"))->status, 200);
  const double before_s = process_cpu_seconds();
  std::this_thread::sleep_for(300ms);
  EXPECT_LT(process_cpu_seconds() - before_s, 0.015);
}

// Many clients, some of whom leave in the middle: every request ends, and is ended once.
TEST(ServerLimits, ParallelClientsWithRandomCancels) {
  constexpr int kClients = 200;
  ServerOptions options;
  options.num_io_threads = 2;
  World world({.script = [](const Request& request, int32_t) { return tokens_of(std::string(5 + request.prompt.size() % 40, 'a')); },
               .step = 200us, .max_running = 16}, options);
  std::atomic<int> finished = 0, left = 0, wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 20; ++t) {
    threads.emplace_back([&, t] {
      Rng rng(static_cast<uint64_t>(t));
      for (int i = 0; i < kClients / 20; ++i) {
        RawClient client(world.port());
        const bool stream = rng.below(2) == 0;
        const std::string body = R"({"model":"fake","messages":[{"role":"user","content":")" + std::string(rng.below(50), 'q') + "\"}]" +
                                 (stream ? R"(,"stream":true)" : "") + (rng.below(3) == 0 ? R"(,"n":2)" : "") + "}";
        client.send(post(kChat, body));
        if (rng.below(3) == 0) {
          client.receive(static_cast<int>(rng.below(20)));
          left += 1;
          continue;
        }
        const std::optional<Answer> answer = client.answer();
        if (!answer || answer->status != 200 || (stream && frames(answer->body).back() != "data: [DONE]")) wrong += 1;
        finished += 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(finished + left, kClients);
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(eventually([&] { return world.inference.num_live() == 0; }));
  for (const auto& [id, count] : world.inference.cancel_calls()) EXPECT_EQ(count, 1) << id;
  const std::vector<std::string> log = world.wait_log(world.inference.requests().size());
  EXPECT_GE(log.size(), world.inference.requests().size());
  EXPECT_LE(log.size(), static_cast<size_t>(kClients));
}

}  // namespace
}  // namespace deepinfer::api
