// Responses and Messages over sockets: what is kept, listed, gone on from and cancelled; keys, counts, errors in each shape; budgets.
#include <set>

#include "api/routes.h"
#include "http/world.h"
#include "stream_form.h"

namespace deepinfer::api {
namespace {

using namespace testing_support;
using recipe::testing_support::frames_of;

constexpr std::string_view kResponses = "/v1/responses", kMessages = "/v1/messages";

std::string responses(std::string_view more = "", std::string_view input = "\"hi\"") {
  return R"({"model":"fake","input":)" + std::string(input) + std::string(more) + "}";
}
std::string messages(std::string_view more = "") {
  return R"({"model":"fake","max_tokens":100,"messages":[{"role":"user","content":"hi"}])" + std::string(more) + "}";
}

ServerOptions keeping(ServerOptions options = {}) {
  options.response_store = ResponseStoreOptions{.path = ":memory:"};
  return options;
}

std::string method(std::string_view name, std::string_view path, std::string_view headers = "") {
  return std::string(name) + " " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(headers) + "Content-Length: 0\r\n\r\n";
}

std::string text_of(const json::value& value) { return std::string(value.as_string()); }

TEST(Responses, AreKeptListedAndForgotten) {
  World world({}, keeping());
  RawClient client(world.port());
  const json::value made = parse(client.request(post(kResponses, responses(R"(,"metadata":{"k":"v"})"))));
  EXPECT_EQ(made.at("status"), "completed");
  EXPECT_EQ(made.at("store"), true);
  EXPECT_EQ(made.at("output").at(0).at("content").at(0).at("text"), "Hello world.");
  const std::string path = "/v1/responses/" + text_of(made.at("id"));
  EXPECT_EQ(parse(client.request(get(path))), made);

  const json::value items = parse(client.request(get(path + "/input_items")));
  ASSERT_EQ(items.at("data").as_array().size(), 1u);
  EXPECT_EQ(items.at("data").at(0).at("content").at(0).at("text"), "hi");
  EXPECT_EQ(items.at("first_id"), items.at("data").at(0).at("id"));
  EXPECT_EQ(items.at("has_more"), false);

  EXPECT_EQ(parse(client.request(method("DELETE", path))).at("deleted"), true);
  for (const std::string& gone : {get(path), get(path + "/input_items"), method("DELETE", path), method("POST", path + "/cancel")}) {
    expect_error(client.request(gone), 404, "not_found", "does not exist");
  }
}

TEST(Responses, AStreamIsKeptBeforeItsEndIsSaid) {
  World world({}, keeping());
  RawClient client(world.port());
  const std::optional<Answer> answer = client.request(post(kResponses, responses(R"(,"stream":true)")));
  ASSERT_TRUE(answer);
  const auto frames = frames_of(answer->body);
  ASSERT_EQ(frames.back().event, "response.completed");
  const json::value& last = frames.back().data.at("response");
  const json::value kept = parse(client.request(get("/v1/responses/" + text_of(last.at("id")))));
  EXPECT_EQ(recipe::testing_support::without_nulls(kept), last);
}

TEST(Responses, AreNotKeptWhenNobodyWantsIt) {
  World keeps({}, keeping()), forgets;
  RawClient keeping_client(keeps.port()), forgetting_client(forgets.port());
  const json::value unwanted = parse(keeping_client.request(post(kResponses, responses(R"(,"store":false)"))));
  EXPECT_EQ(unwanted.at("store"), false);
  expect_error(keeping_client.request(get("/v1/responses/" + text_of(unwanted.at("id")))), 404, "not_found");
  const json::value impossible = parse(forgetting_client.request(post(kResponses, responses(R"(,"store":true)"))));
  EXPECT_EQ(impossible.at("store"), false) << "a server without a store must not promise one";
  expect_error(forgetting_client.request(get("/v1/responses/" + text_of(impossible.at("id")))), 404, "not_found");
  expect_error(forgetting_client.request(post(kResponses, responses(R"(,"previous_response_id":"resp_1")"))), 400, "invalid_request_error", "keeps no responses");
}

TEST(Responses, GoOnFromEarlierOnes) {
  World world({.script = [](const Request& request, int32_t) { return tokens_of("n" + std::to_string(request.prompt.size() % 7)); }}, keeping());
  RawClient client(world.port());
  std::string id;
  std::string conversation;
  for (int turn = 0; turn < 4; ++turn) {
    const std::string question = "q" + std::to_string(turn);
    const std::string more = id.empty() ? "" : ",\"previous_response_id\":\"" + id + "\"";
    const json::value made = parse(client.request(post(kResponses, responses(more, "\"" + question + "\""))));
    ASSERT_EQ(made.at("status"), "completed") << made;
    id = text_of(made.at("id"));
    conversation += "<|start|>user\n" + question + "<|end|>";
    EXPECT_EQ(world.tokenizer.decode(world.inference.requests().back().prompt, true), conversation + "<|start|>assistant\n");
    conversation += "<|start|>assistant\n" + text_of(made.at("output").at(0).at("content").at(0).at("text")) + "<|end|>";
  }
  EXPECT_EQ(parse(client.request(get("/v1/responses/" + id + "/input_items"))).at("data").as_array().size(), 1u) << "its own input alone";
  expect_error(client.request(post(kResponses, responses(R"(,"previous_response_id":"resp_unknown")"))), 400, "invalid_request_error", "does not exist");
  expect_error(client.request(post(kResponses, responses(R"(,"previous_response_id":"")"))), 400, "invalid_request_error", "does not exist");
}

TEST(Responses, InputIsCounted) {
  World world({}, keeping());
  RawClient client(world.port());
  const json::value made = parse(client.request(post(kResponses, responses())));
  const json::value count = parse(client.request(post("/v1/responses/input_tokens", responses())));
  EXPECT_EQ(count.at("object"), "response.input_tokens");
  EXPECT_EQ(count.at("input_tokens"), made.at("usage").at("input_tokens"));
  const std::string on = R"(,"previous_response_id":)" + json::serialize(made.at("id"));
  EXPECT_GT(parse(client.request(post("/v1/responses/input_tokens", responses(on)))).at("input_tokens").as_int64(), count.at("input_tokens").as_int64());
  EXPECT_EQ(world.inference.requests().size(), 1u) << "counting computes nothing";
}

TEST(RequestLog, NamesTheModelOfEveryRequestThatNamesOne) {
  World world;
  RawClient client(world.port());
  const std::string bad = R"(,"temperature":9)";
  size_t num_lines = 0;
  const auto next_line = [&] {
    num_lines += 1;
    EXPECT_TRUE(eventually([&] { return world.log_lines().size() == num_lines; }));
    return world.log_lines().back();
  };
  for (const auto& [path, body] : std::vector<std::pair<std::string_view, std::string>>{{kResponses, responses()}, {kResponses, responses(bad)}, {kMessages, messages(bad)},
        {"/v1/responses/input_tokens", responses()}, {"/v1/messages/count_tokens", messages()}, {"/tokenize", R"({"model":"fake","prompt":"a"})"}}) {
    client.request(post(path, body));
    const std::string line = next_line();
    EXPECT_NE(line.find(R"("model":"fake")"), std::string::npos) << path << " " << line;
  }
  client.request(post(kResponses, R"({"model":"other","input":"x"})"));
  EXPECT_NE(next_line().find(R"("model":"")"), std::string::npos) << "none of this server's";
}

TEST(Responses, ItemsAreFoundByReference) {
  World world({}, keeping());
  RawClient client(world.port());
  const json::value made = parse(client.request(post(kResponses, responses())));
  const std::string id = text_of(made.at("output").at(0).at("id"));
  const auto with = [&](const std::string& item) {
    return client.request(post(kResponses, responses("", R"([{"role":"user","content":"q"},{"type":"item_reference","id":")" + item + R"("},{"role":"user","content":"r"}])")));
  };
  EXPECT_EQ(with(id)->status, 200);
  EXPECT_NE(world.tokenizer.decode(world.inference.requests().back().prompt, true).find("assistant\nHello world.<|end|>"), std::string::npos);
  for (const std::string& other : {std::string("msg_0_0"), std::string("x"), std::string("__"), id + "0"}) expect_error(with(other), 400, "invalid_request_error", "not kept");
}

TEST(Messages, AClientIsToldToGoOnWithoutAThread) {
  World world;
  RawClient client(world.port());
  const std::optional<Answer> answer = client.request(post(kMessages, messages(R"(,"thread":{"type":"create"})")));
  EXPECT_EQ(answer->status, 400);
  EXPECT_EQ(parse(answer).at("error").at("details").at("error_code"), "thread_unsupported_request");
}

TEST(Responses, InputIsListedInPages) {
  World world({}, keeping());
  RawClient client(world.port());
  std::string input = "[";
  for (int i = 0; i < 5; ++i) input += R"({"role":"user","id":"m)" + std::to_string(i) + R"(","content":"x"},)";
  input.back() = ']';
  const std::string path = "/v1/responses/" + text_of(parse(client.request(post(kResponses, responses("", input)))).at("id")) + "/input_items";
  const auto ids = [&](const std::string& query) {
    const json::value page = parse(client.request(get(path + query)));
    std::string out;
    for (const json::value& item : page.at("data").as_array()) out += text_of(item.at("id"));
    return out + (page.at("has_more").as_bool() ? "+" : "");
  };
  EXPECT_EQ(ids(""), "m4m3m2m1m0");
  EXPECT_EQ(ids("?order=asc&limit=2"), "m0m1+");
  EXPECT_EQ(ids("?limit=2&after=m3&order=desc"), "m2m1+");
  EXPECT_EQ(ids("?after=m0"), "");
  for (const char* bad : {"?limit=0", "?limit=101", "?limit=x", "?order=up", "?after=m9"}) EXPECT_EQ(client.request(get(path + bad))->status, 400) << bad;
}

TEST(Responses, ARunningOneCanBeSeenAndCancelled) {
  World world({.script = [](const Request&, int32_t) { return tokens_of("x", false); }, .step = 2ms, .max_context = 1'000'000}, keeping());
  RawClient client(world.port()), other(world.port());
  ASSERT_TRUE(client.send(post(kResponses, responses(R"(,"stream":true)"))));
  ASSERT_TRUE(client.receive_until("response.output_text.delta"));
  const size_t at = client.pending().find("\"id\":\"resp_");
  const std::string id = client.pending().substr(at + 6, 29);
  EXPECT_EQ(parse(other.request(get("/v1/responses/" + id))).at("status"), "in_progress");
  const json::value cancelled = parse(other.request(method("POST", "/v1/responses/" + id + "/cancel")));
  EXPECT_EQ(cancelled.at("status"), "cancelled") << cancelled;
  EXPECT_EQ(cancelled.at("id"), id.c_str());
  const std::optional<Answer> answer = client.answer();
  ASSERT_TRUE(answer);
  const auto frames = frames_of(answer->body);
  EXPECT_EQ(frames.back().event, "response.incomplete");
  EXPECT_EQ(frames.back().data.at("response").at("status"), "cancelled");
  EXPECT_EQ(parse(other.request(get("/v1/responses/" + id))).at("status"), "cancelled");
  expect_error(other.request(method("POST", "/v1/responses/" + id + "/cancel")), 400, "invalid_request_error", "nothing to cancel");
  EXPECT_TRUE(eventually([&] { return world.inference.num_live() == 0; }));
}

TEST(Responses, ARunningOneCanBeRemoved) {
  for (const bool keeps : {true, false}) {
    World world({.script = [](const Request&, int32_t) { return tokens_of("x", false); }, .step = 2ms, .max_context = 1'000'000}, keeps ? keeping() : ServerOptions());
    RawClient client(world.port()), other(world.port());
    ASSERT_TRUE(client.send(post(kResponses, responses(R"(,"stream":true)"))));
    ASSERT_TRUE(client.receive_until("response.output_text.delta"));
    const std::string id = client.pending().substr(client.pending().find("\"id\":\"resp_") + 6, 29), path = "/v1/responses/" + id;
    EXPECT_EQ(parse(other.request(method("DELETE", path))).at("deleted"), true);
    const std::optional<Answer> answer = client.answer();
    ASSERT_TRUE(answer);
    EXPECT_EQ(frames_of(answer->body).back().data.at("response").at("status"), "cancelled");
    for (const std::string& gone : {get(path), method("DELETE", path), method("POST", path + "/cancel")}) expect_error(other.request(gone), 404, "not_found", "does not exist");
    EXPECT_TRUE(eventually([&] { return world.inference.num_live() == 0; }));
  }
}

// What a client sends may be nested deeply, and so is what is made and kept of it.
TEST(Responses, GoOnFromOnesWithDeepTools) {
  World world({}, keeping());
  RawClient client(world.port());
  std::string schema = R"({"type":"string"})";
  for (int i = 0; i < 60; ++i) schema = R"({"type":"object","properties":{"a":)" + schema + "}}";
  const std::string tools = R"(,"tools":[{"type":"function","name":"f","parameters":)" + schema + "}]";
  const json::value made = parse(client.request(post(kResponses, responses(tools))));
  ASSERT_EQ(made.at("status"), "completed") << made;
  EXPECT_EQ(client.request(post(kResponses, responses(",\"previous_response_id\":" + json::serialize(made.at("id")))))->status, 200);
  EXPECT_NE(world.tokenizer.decode(world.inference.requests().back().prompt, true).find("assistant\nHello world.<|end|>"), std::string::npos);
}

TEST(Responses, TenantsSeeTheirOwn) {
  ServerOptions options = keeping();
  options.keys = *ApiKeys::parse("one:k1\ntwo:k2\n", "keys");
  World world({}, std::move(options));
  RawClient client(world.port());
  const json::value made = parse(client.request(post(kResponses, responses(), "Authorization: Bearer k1\r\n")));
  const std::string path = "/v1/responses/" + text_of(made.at("id"));
  EXPECT_EQ(client.request(get(path, "x-api-key: k1\r\n"))->status, 200);
  EXPECT_EQ(client.request(get(path, "x-api-key: k2\r\n"))->status, 404);
  EXPECT_EQ(client.request(method("DELETE", path, "x-api-key: k2\r\n"))->status, 404);
  EXPECT_EQ(client.request(method("POST", path + "/cancel", "x-api-key: k2\r\n"))->status, 404);
  const std::string more = ",\"previous_response_id\":\"" + text_of(made.at("id")) + "\"";
  EXPECT_EQ(client.request(post(kResponses, responses(more), "x-api-key: k2\r\n"))->status, 400);
  EXPECT_EQ(client.request(get(path))->status, 401);
}

TEST(Responses, ReasoningComesBackSealed) {
  ServerOptions options;
  options.keys = *ApiKeys::parse("one:k1\ntwo:k2\n", "keys");
  options.state_secret = "a secret";
  const FakeInference::Options engine{.script = [](const Request&, int32_t) { return tokens_of("<think>Hm.</think>Yes."); }};
  World world(engine, options), same_secret(engine, options);
  RawClient client(world.port());
  const json::value made = parse(client.request(post(kResponses, responses(R"(,"include":["reasoning.encrypted_content"])"), "x-api-key: k1\r\n")));
  json::object item = made.at("output").at(0).as_object();
  ASSERT_EQ(item.at("type"), "reasoning");
  item["content"] = nullptr;  // as clients send it that keep only what they cannot read
  const auto status = [&](World& server, const json::object& reasoning, const char* key) {
    const std::string input = R"([{"role":"user","content":"q"},)" + json::serialize(reasoning) + R"(,{"role":"assistant","content":"Yes."},{"role":"user","content":"r"}])";
    RawClient asking(server.port());
    return asking.request(post(kResponses, responses("", input), "x-api-key: " + std::string(key) + "\r\n"))->status;
  };
  EXPECT_EQ(status(world, item, "k1"), 200);
  EXPECT_EQ(status(same_secret, item, "k1"), 200) << "a restart, or another server of the same service";
  EXPECT_EQ(status(world, item, "k2"), 400) << "another tenant's";
  json::string& sealed = item["encrypted_content"].as_string();
  sealed[20] = sealed[20] == 'A' ? 'B' : 'A';
  EXPECT_EQ(status(world, item, "k1"), 400);
}

TEST(Messages, AnswersAndCounts) {
  World world;
  RawClient client(world.port());
  const std::optional<Answer> answer = client.request(post(kMessages, messages(), "anthropic-version: 2023-06-01\r\nanthropic-beta: x\r\n"));
  const json::value message = parse(answer);
  EXPECT_EQ(message.at("content").at(0).at("text"), "Hello world.");
  EXPECT_EQ(message.at("stop_reason"), "end_turn");
  EXPECT_EQ(answer->headers.at("request-id"), answer->headers.at("x-request-id"));
  const json::value& usage = message.at("usage");
  const json::value count = parse(client.request(post("/v1/messages/count_tokens", R"({"model":"fake","messages":[{"role":"user","content":"hi"}]})")));
  EXPECT_EQ(count.at("input_tokens").as_int64(), usage.at("input_tokens").as_int64() + usage.at("cache_read_input_tokens").as_int64());
  EXPECT_EQ(world.inference.requests().size(), 1u) << "counting computes nothing";
  EXPECT_EQ(parse(client.request(post("/anthropic/v1/messages", messages()))).at("type"), "message");
}

TEST(Messages, ALastAssistantTurnIsGoneOnWith) {
  World world;
  RawClient client(world.port());
  const std::string body = R"({"model":"fake","max_tokens":9,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"The"}]})";
  EXPECT_EQ(client.request(post(kMessages, body))->status, 200);
  EXPECT_EQ(world.tokenizer.decode(world.inference.requests().back().prompt, true), "<|start|>user\nq<|end|><|start|>assistant\nThe");
}

TEST(Messages, ErrorsAreInTheirShape) {
  ServerOptions options;
  options.keys = *ApiKeys::parse("key", "keys");
  World world({.max_waiting = 0, .max_context = 50}, std::move(options));
  RawClient client(world.port());
  const auto refused = [&](const std::string& request, int status, std::string_view type, std::string_view part = "") {
    const std::optional<Answer> answer = client.request(request);
    const json::value body = parse(answer);
    EXPECT_EQ(answer->status, status) << answer->raw;
    EXPECT_EQ(body.at("type"), "error");
    EXPECT_EQ(body.at("error").at("type").as_string(), type) << answer->body;
    EXPECT_EQ(text_of(body.at("request_id")), answer->headers.at("request-id"));
    EXPECT_NE(text_of(body.at("error").at("message")).find(part), std::string::npos) << answer->body;
  };
  constexpr std::string_view kKey = "x-api-key: key\r\n";
  refused(post(kMessages, messages()), 401, "authentication_error");
  refused(post(kMessages, messages(R"(,"top_p":0)"), kKey), 400, "invalid_request_error", "top_p");
  refused(post(kMessages, R"({"model":"other","messages":[]})", kKey), 404, "not_found_error");
  refused(get(kMessages, kKey), 405, "invalid_request_error");
  refused(get("/v1/messages/batches", kKey), 404, "not_found_error");
  refused(post("/v1/messages/count_tokens", "[]", kKey), 400, "invalid_request_error");
  refused(post(kMessages, messages(), kKey), 400, "invalid_request_error", "prompt is too long: ");
  refused(post(kMessages, R"({"model":"fake","max_tokens":1,"messages":[{"role":"user","content":"x"}]})", kKey), 429, "rate_limit_error");
  refused(get("/v1/models/other", std::string(kKey) + "anthropic-version: 2023-06-01\r\n"), 404, "not_found_error");
  refused(get("/v1/models", "anthropic-version: 2023-06-01\r\n"), 401, "authentication_error");
}

TEST(Messages, AnOverloadedServerSaysSoWithTheirStatus) {
  World world;
  RawClient client(world.port());
  ASSERT_EQ(client.request(get("/health"))->status, 200);
  world.inference.drain();
  const std::optional<Answer> answer = client.request(post(kMessages, messages()));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 529);
  EXPECT_EQ(parse(answer).at("error").at("type"), "overloaded_error");
  EXPECT_TRUE(answer->headers.contains("retry-after"));
}

TEST(Messages, AFaultInAStreamIsAnErrorEvent) {
  World world({.step = 20ms, .fail_after = 3});
  RawClient client(world.port());
  const std::optional<Answer> answer = client.request(post(kMessages, messages(R"(,"stream":true)")));
  ASSERT_TRUE(answer);
  const auto frames = frames_of(answer->body);
  EXPECT_EQ(frames.front().event, "message_start");
  EXPECT_EQ(frames.back().event, "error");
  EXPECT_EQ(frames.back().data.at("error").at("type"), "api_error");
}

TEST(Messages, ASilentStreamPings) {
  World world({.paused = true}, {.keep_alive_interval = 20ms, .header_delay = 20ms});
  RawClient client(world.port());
  ASSERT_TRUE(client.send(post(kMessages, messages(R"(,"stream":true)"))));
  ASSERT_TRUE(client.receive_until(": keep-alive")) << "nothing that could come before message_start";
  EXPECT_EQ(client.pending().find("event: "), std::string::npos);
  world.inference.resume();
  const std::optional<Answer> answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(frames_of(answer->body).back().event, "message_stop");
}

TEST(Budgets, EndThinkingByForcingTheCloseToken) {
  World world({.script = [](const Request&, int32_t) { return tokens_of("Let me think about this.</think>Yes."); }});
  RawClient client(world.port());
  for (const auto& [budget, want] : {std::pair<int, std::string>{6, "Let me"}, {1000, "Let me think about this."}, {0, ""}}) {
    const std::string thinking = R"(,"thinking":{"type":"enabled","budget_tokens":)" + std::to_string(budget) + "}";
    const json::value chat_answer = parse(client.request(post(kChat, chat(thinking))));
    EXPECT_EQ(chat_answer.at("choices").at(0).at("message").at("reasoning_content").as_string(), want);
    EXPECT_EQ(chat_answer.at("choices").at(0).at("message").at("content"), "Yes.");
    const json::value message = parse(client.request(post(kMessages, messages(thinking))));
    EXPECT_EQ(message.at("content").at(0).at("thinking").as_string(), want);
    EXPECT_EQ(message.at("content").at(1).at("text"), "Yes.");
  }
}

TEST(Models, AreListedInBothForms) {
  World world;
  RawClient client(world.port());
  EXPECT_EQ(parse(client.request(get("/v1/models"))).at("data").at(0).at("object"), "model");
  const json::value list = parse(client.request(get("/v1/models", "anthropic-version: 2023-06-01\r\n")));
  EXPECT_EQ(list.at("data").at(0).at("type"), "model");
  EXPECT_EQ(list.at("data").at(0).at("created_at"), "2023-11-14T22:13:20.000Z");
  EXPECT_EQ(list.at("first_id"), "fake");
  EXPECT_EQ(parse(client.request(get("/anthropic/v1/models"))).at("has_more"), false);
}

TEST(OpenApi, DescribesEveryRoute) {
  World world;
  RawClient client(world.port());
  const json::value document = parse(client.request(get("/openapi.json")));
  EXPECT_EQ(document.at("openapi"), "3.1.0");
  for (const auto& [path, methods] : document.at("paths").as_object()) {
    std::string concrete(path);
    if (const size_t brace = concrete.find('{'); brace != std::string::npos) concrete.replace(brace, 4, "x");
    const Route route = find_route(concrete);
    EXPECT_NE(route.endpoint, Endpoint::kUnknown) << path;
    std::string upper;
    for (const auto& [name, operation] : methods.as_object()) {
      for (const char c : std::string_view(name)) upper += static_cast<char>(c - 'a' + 'A');
      upper += ", ";
    }
    upper.resize(upper.size() - 2);
    EXPECT_EQ(upper, allowed_methods(route.endpoint)) << path;
  }
  // And no endpoint is left out.
  std::set<std::string> described;
  for (const auto& entry : document.at("paths").as_object()) {
    std::string concrete(entry.key());
    if (const size_t brace = concrete.find('{'); brace != std::string::npos) concrete.replace(brace, 4, "x");
    described.insert(std::to_string(static_cast<int>(find_route(concrete).endpoint)));
  }
  EXPECT_EQ(described.size(), static_cast<size_t>(Endpoint::kUnknown));
}

}  // namespace
}  // namespace deepinfer::api
