// What the server answers, over real sockets, against a scripted engine.
#include "http/world.h"

namespace deepinfer::api {
namespace {

using namespace testing_support;

TEST(Server, AnswersAChat) {
  World world;
  RawClient client(world.port());
  const std::optional<Answer> answer = client.request(post(kChat, chat()));
  const json::value body = parse(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->headers.at("content-type"), "application/json");
  EXPECT_EQ(answer->headers.at("x-request-id").substr(0, 4), "req_");
  EXPECT_EQ(body.at("object").as_string(), "chat.completion");
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content").as_string(), "Hello world.");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason").as_string(), "stop");
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 13);
  const int64_t prompt = body.at("usage").at("prompt_tokens").as_int64();
  EXPECT_EQ(prompt, 20);  // START user LF hi END START assistant LF
  EXPECT_EQ(body.at("usage").at("prompt_cache_hit_tokens").as_int64(), 1);
  EXPECT_EQ(body.at("usage").at("prompt_cache_miss_tokens").as_int64(), prompt - 1);
  // The same connection takes the next request.
  EXPECT_EQ(client.request(post("/chat/completions", chat()))->status, 200);
}

// What was known and did not come is no divergence.
TEST(Server, TheCacheHeaderTellsWhereAPromptDivergedAndWhatDidNotCome) {
  const auto header = [](const Usage& found) {
    World world({.found = found});
    RawClient client(world.port());
    return client.request(post(kChat, chat()))->headers.at("x-deepinfer-cache");
  };
  EXPECT_EQ(header({}), "ram=0, disk=0, shared=0, computed=20, divergent-at=0");
  EXPECT_EQ(header({.cached_tokens = 16, .disk_tokens = 8, .shared_tokens = 4, .match = {.tokens = 16, .age_s = 120}}),
            "ram=4, disk=8, shared=4, computed=4, divergent-at=16, age=120");
  EXPECT_EQ(header({.cached_tokens = 4, .disk_tokens = 4, .match = {.tokens = 16, .age_s = 0, .missed = CacheMiss::kLate}}),
            "ram=0, disk=4, shared=0, computed=16, late=12, divergent-at=16, age=0");
  EXPECT_EQ(header({.match = {.tokens = 16, .age_s = 3, .missed = CacheMiss::kCorrupt}}),
            "ram=0, disk=0, shared=0, computed=20, corrupt=16, divergent-at=16, age=3");
}

TEST(Server, StreamsAChat) {
  World world;
  RawClient client(world.port());
  const std::optional<Answer> answer = client.request(post(kChat, chat(R"(,"stream":true,"stream_options":{"include_usage":true})")));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(answer->headers.at("cache-control"), "no-cache");
  const std::vector<std::string> list = frames(answer->body);
  ASSERT_GE(list.size(), 5u);
  EXPECT_NE(list.front().find(R"("delta":{"role":"assistant","content":""})"), std::string::npos) << list.front();
  EXPECT_EQ(list.back(), "data: [DONE]");
  const json::value usage = json::parse(list[list.size() - 2].substr(6));
  EXPECT_TRUE(usage.at("choices").as_array().empty());
  EXPECT_EQ(usage.at("usage").at("completion_tokens").as_int64(), 13);
  EXPECT_NE(list[list.size() - 3].find(R"("delta":{"content":""},"logprobs":null,"finish_reason":"stop")"), std::string::npos);
  EXPECT_EQ(streamed_text(answer->body), "Hello world.");
  EXPECT_EQ(client.request(get("/health"))->status, 200);
}

TEST(Server, SplitsReasoning) {
  World world({.script = [](const Request&, int32_t) { return tokens_of("Hm</think>Yes"); }});
  RawClient client(world.port());
  const json::value body = parse(client.request(post(kChat, chat(R"(,"thinking":{"type":"enabled"})"))));
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content").as_string(), "Yes");
  EXPECT_EQ(body.at("choices").at(0).at("message").at("reasoning_content").as_string(), "Hm");
  EXPECT_EQ(body.at("usage").at("completion_tokens_details").at("reasoning_tokens").as_int64(), 3);
  const std::optional<Answer> stream = client.request(post(kChat, chat(R"(,"thinking":{"type":"enabled"},"stream":true)")));
  EXPECT_NE(stream->body.find(R"("delta":{"role":"assistant","content":null,"reasoning_content":""})"), std::string::npos);
  EXPECT_EQ(streamed_text(stream->body, 0, "reasoning_content"), "Hm");
  EXPECT_EQ(streamed_text(stream->body), "Yes");
}

TEST(Server, ChoicesOfOneRequestAreKeptApart) {
  World world({.script = [](const Request&, int32_t choice) { return tokens_of("choice " + std::to_string(choice)); }});
  RawClient client(world.port());
  const json::value body = parse(client.request(post(kChat, chat(R"(,"n":8)"))));
  ASSERT_EQ(body.at("choices").as_array().size(), 8u);
  for (int64_t i = 0; i < 8; ++i) {
    const json::value& choice = body.at("choices").at(static_cast<size_t>(i));
    EXPECT_EQ(choice.at("index").as_int64(), i);
    EXPECT_EQ(choice.at("message").at("content").as_string(), "choice " + std::to_string(i));
  }
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 8 * 9);
  const std::optional<Answer> stream = client.request(post(kChat, chat(R"(,"n":3,"stream":true)")));
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(streamed_text(stream->body, i), "choice " + std::to_string(i));
}

TEST(Server, LogprobsCarryTokensAndBytes) {
  World world({.script = [](const Request&, int32_t) { return tokens_of("aé"); }});
  RawClient client(world.port());
  const json::value body = parse(client.request(post(kChat, chat(R"(,"logprobs":true,"top_logprobs":2)"))));
  const json::array& content = body.at("choices").at(0).at("logprobs").at("content").as_array();
  ASSERT_EQ(content.size(), 3u);  // a, and two bytes of é; the end token is not text
  EXPECT_EQ(content[0].at("token").as_string(), "a");
  EXPECT_DOUBLE_EQ(content[0].at("logprob").as_double(), -0.25);
  EXPECT_EQ(content[0].at("bytes").at(0).as_int64(), 'a');
  ASSERT_EQ(content[0].at("top_logprobs").as_array().size(), 2u);
  EXPECT_EQ(content[0].at("top_logprobs").at(1).at("token").as_string(), "b");
  EXPECT_EQ(content[1].at("bytes").at(0).as_int64(), 0xC3);
  EXPECT_EQ(content[1].at("token").as_string(), "\uFFFD");
}

TEST(Server, AStopStringEndsItsChoice) {
  World world({.script = [](const Request&, int32_t) { return tokens_of("one END two three", false); }, .max_context = 100000});
  RawClient client(world.port());
  const json::value body = parse(client.request(post(kChat, chat(R"(,"stop":["END"])"))));
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content").as_string(), "one ");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason").as_string(), "stop");
  EXPECT_EQ(world.inference.choice_cancel_calls().size(), 1u);
  EXPECT_TRUE(world.inference.cancel_calls().empty());
}

// Choice 1 meets its stop string at once; its siblings, which never do, must not keep its end from the client.
TEST(Server, AStopStringDoesNotWaitForTheOtherChoices) {
  World world({.script = [](const Request&, int32_t choice) { return tokens_of(choice == 1 ? "a END b" : "abc", false); },
               .step = 1ms, .max_context = 100000});
  RawClient client(world.port());
  const std::optional<Answer> answer = client.request(post(kChat, chat(R"(,"n":3,"stream":true,"max_tokens":60,"stop":["END"])")));
  ASSERT_TRUE(answer);
  EXPECT_EQ(streamed_text(answer->body, 1), "a ");
  for (const int64_t other : {0, 2}) EXPECT_EQ(streamed_text(answer->body, other).size(), 60u);
  const size_t stopped = answer->body.find(R"("finish_reason":"stop")"), others = answer->body.find(R"("finish_reason":"length")");
  ASSERT_NE(others, std::string::npos);
  ASSERT_LT(stopped, others);
  size_t num_frames_between = 0;
  for (size_t at = stopped; (at = answer->body.find("\n\n", at)) < others; at += 2) num_frames_between += 1;
  EXPECT_GT(num_frames_between, 20u) << "the siblings went on long after the end was told";
  using Calls = std::map<std::pair<RequestId, int32_t>, int>;
  EXPECT_EQ(world.inference.choice_cancel_calls(), (Calls{{{1, 1}, 1}}));
  EXPECT_TRUE(world.inference.cancel_calls().empty());
}

TEST(Server, LengthAndDefaults) {
  World world({.script = [](const Request&, int32_t) { return tokens_of("x", false); }, .max_context = 40},
              {.sampling = {.temperature = 0.5f, .top_k = 7}});
  RawClient client(world.port());
  json::value body = parse(client.request(post(kChat, chat(R"(,"max_tokens":3)"))));
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content").as_string(), "xxx");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason").as_string(), "length");
  body = parse(client.request(post(kChat, chat())));
  const std::vector<Request> requests = world.inference.requests();
  EXPECT_EQ(requests[0].sampling.temperature, 0.5f);
  EXPECT_EQ(requests[0].sampling.top_k, 7);
  EXPECT_EQ(requests[1].sampling.max_tokens, 40 - static_cast<int32_t>(requests[1].prompt.size()));
  EXPECT_NE(requests[0].sampling.seed, requests[1].sampling.seed);
  parse(client.request(post(kChat, chat(R"(,"seed":5)"))));
  EXPECT_EQ(world.inference.requests()[2].sampling.seed, 5u);
}

TEST(Server, TooLongIsTold) {
  World world({.max_context = 40});
  RawClient client(world.port());
  std::optional<Answer> answer = client.request(post(kChat, chat(R"(,"max_tokens":30)")));
  expect_error(answer, 400, "context_length_exceeded", "maximum context length is 40 tokens. However, you requested 50 tokens (20 in the messages, 30 in the completion)");
  EXPECT_EQ(parse(answer).at("error").at("n_ctx").as_int64(), 40);
  EXPECT_EQ(parse(answer).at("error").at("param").as_string(), "messages");
  answer = client.request(post("/v1/completions", R"({"model":"fake","prompt":")" + std::string(40, 'x') + "\"}"));
  expect_error(answer, 400, "context_length_exceeded");
  EXPECT_EQ(parse(answer).at("error").at("param").as_string(), "prompt");
  expect_error(client.request(post(kChat, chat(R"(,"max_tokens":3,"min_tokens":4)"))), 400, "invalid_request_error", "min_tokens");
}

TEST(Server, Completions) {
  World world;
  RawClient client(world.port());
  const json::value body = parse(client.request(post("/v1/completions", R"({"model":"fake","prompt":"Say","logprobs":1})")));
  EXPECT_EQ(body.at("object").as_string(), "text_completion");
  EXPECT_EQ(body.at("choices").at(0).at("text").as_string(), "Hello world.");
  EXPECT_EQ(body.at("choices").at(0).at("logprobs").at("tokens").as_array().size(), 12u);
  EXPECT_EQ(body.at("choices").at(0).at("logprobs").at("text_offset").at(2).as_int64(), 2);
  EXPECT_EQ(world.inference.requests()[0].prompt, (std::vector<TokenId>{'S', 'a', 'y'}));
  parse(client.request(post("/v1/completions", R"({"model":"fake","prompt":[5,6]})")));
  EXPECT_EQ(world.inference.requests()[1].prompt, (std::vector<TokenId>{5, 6}));
  parse(client.request(post("/v1/completions", R"({"model":"fake","prompt":"<|end|>","parse_special":true})")));
  EXPECT_EQ(world.inference.requests()[2].prompt, (std::vector<TokenId>{kEnd}));
  parse(client.request(post("/v1/completions", R"({"model":"fake","prompt":"<|end|>"})")));
  EXPECT_EQ(world.inference.requests()[3].prompt.size(), 7u);
  expect_error(client.request(post("/v1/completions", R"({"model":"fake","prompt":""})")), 400, "invalid_request_error", "empty");
  const std::optional<Answer> stream = client.request(post("/v1/completions", R"({"model":"fake","prompt":"a","stream":true})"));
  EXPECT_NE(stream->body.find(R"("text":"H")"), std::string::npos);
  EXPECT_EQ(frames(stream->body).back(), "data: [DONE]");
}

TEST(Server, CompletionsAddTheBosThatTheOperatorWants) {
  World world({}, {.completions_add_bos = true});
  RawClient client(world.port());
  parse(client.request(post("/v1/completions", R"({"model":"fake","prompt":"a"})")));
  EXPECT_EQ(world.inference.requests()[0].prompt, (std::vector<TokenId>{kStart, 'a'}));
}

TEST(Server, TokenizeAndDetokenize) {
  World world;
  RawClient client(world.port());
  EXPECT_EQ(client.request(post("/tokenize", R"({"model":"fake","prompt":"ab"})"))->body, R"({"count":2,"max_model_len":1000,"tokens":[97,98]})");
  EXPECT_EQ(parse(client.request(post("/v1/tokenize", R"({"messages":[{"role":"user","content":"a"}]})"))).at("count").as_int64(), 19);
  EXPECT_EQ(client.request(post("/detokenize", R"({"tokens":[97,257]})"))->body, R"({"prompt":"a<|end|>"})");
  expect_error(client.request(post("/tokenize", "{}")), 400, "invalid_request_error", "prompt or messages");
  expect_error(client.request(post("/detokenize", R"({"tokens":[260]})")), 400, "invalid_request_error", "259");
  expect_error(client.request(post("/detokenize", R"({"tokens":"a"})")), 400, "invalid_request_error", "array");
}

TEST(Server, ModelsHealthMetrics) {
  World world({}, {.model_aliases = {"gpt-x"}});
  RawClient client(world.port());
  const json::value models = parse(client.request(get("/v1/models")));
  EXPECT_EQ(models.at("data").as_array().size(), 2u);
  EXPECT_EQ(models.at("data").at(0).at("id").as_string(), "fake");
  EXPECT_EQ(models.at("data").at(0).at("created").as_int64(), 1700000000);
  EXPECT_EQ(parse(client.request(get("/v1/models/gpt-x"))).at("id").as_string(), "gpt-x");
  expect_error(client.request(get("/v1/models/none")), 404, "model_not_found", "none");
  EXPECT_EQ(client.request(get("/health"))->body, "{}");
  EXPECT_EQ(client.request(get("/ready"))->status, 200);
  parse(client.request(post(kChat, R"({"model":"gpt-x","messages":[{"role":"user","content":"hi"}]})")));
  const std::string metrics = client.request(get("/metrics"))->body;
  for (const char* line : {"deepinfer_requests_total{model_name=\"fake\",endpoint=\"chat\",outcome=\"stop\"} 1",
                           "deepinfer_time_to_first_token_seconds_count{model_name=\"fake\"} 1",
                           "deepinfer_time_per_output_token_seconds_count{model_name=\"fake\"} 12",
                           "deepinfer_e2e_request_latency_seconds_count{model_name=\"fake\"} 1",
                           "deepinfer_generation_tokens_total{model_name=\"fake\"} 13",
                           "deepinfer_num_requests_waiting{model_name=\"fake\"} 0", "deepinfer_http_connections 1",
                           "# TYPE deepinfer_num_preemptions_total counter"}) {
    EXPECT_NE(metrics.find(line), std::string::npos) << line << "\n" << metrics;
  }
}

TEST(Server, AnAliasMayStandForAllNamesThatBeginSo) {
  World world({}, {.model_aliases = {"claude-*", "gpt-x"}});
  RawClient client(world.port());
  const auto named = [&](const std::string& name) {
    return client.request(post(kChat, R"({"model":")" + name + R"(","messages":[{"role":"user","content":"hi"}]})"));
  };
  EXPECT_EQ(parse(named("claude-sonnet-4-5")).at("model"), "claude-sonnet-4-5");
  EXPECT_EQ(named("claude-")->status, 200);
  EXPECT_EQ(named("claude")->status, 404);
  EXPECT_EQ(named("claude-" + std::string(200, 'x'))->status, 404);
  EXPECT_EQ(named("gpt-x2")->status, 404);
  EXPECT_EQ(client.request(get("/v1/models/claude-haiku"))->status, 200);
  EXPECT_EQ(parse(client.request(get("/v1/models"))).at("data").as_array().size(), 2u) << "a pattern is no name";
}

TEST(Server, WhoSetsTheTemperatureOfThinkingIsTheOperatorsChoice) {
  for (const bool forced : {true, false}) {
    World world({}, {.dialect = recipe::Dialect::kV41, .force_thinking_sampling = forced});
    RawClient client(world.port());
    EXPECT_EQ(client.request(post(kChat, chat(R"(,"temperature":0)")))->status, 200);
    EXPECT_EQ(world.inference.requests().back().sampling.temperature, forced ? 1.0f : 0.0f);
  }
}

TEST(Server, RefusesWhatItCannotRead) {
  World world;
  RawClient client(world.port());
  expect_error(client.request(post(kChat, "{")), 400, "invalid_request_error", "not valid JSON");
  expect_error(client.request(post(kChat, "")), 400, "invalid_request_error", "empty");
  expect_error(client.request(post(kChat, R"({"messages":[]})")), 400, "invalid_request_error", "model is missing");
  expect_error(client.request(post(kChat, R"({"model":"other"})")), 404, "model_not_found", "other");
  expect_error(client.request(post(kChat, R"({"model":5})")), 400, "invalid_request_error", "string");
  expect_error(client.request(post(kChat, R"({"model":"fake","messages":[]})")), 400, "invalid_request_error", "empty");
  expect_error(client.request(post(kChat, R"({"model":"fake","messages":[{"role":"user","content":"REFUSE"}]})")), 400, "invalid_request_error",
               "the template refused");
  expect_error(client.request(get("/nothing")), 404, "not_found", "/nothing");
  expect_error(client.request(post("/v1/embeddings", "{}")), 404, "not_found", "not supported by this model server");
  const std::optional<Answer> method = client.request(get(kChat));
  expect_error(method, 405, "method_not_allowed");
  EXPECT_EQ(method->headers.at("allow"), "POST");
  expect_error(client.request(post("/v1/models", "{}")), 405, "method_not_allowed");
  EXPECT_EQ(client.request(get("/health"))->status, 200) << "the connection is still in order";
  EXPECT_TRUE(world.inference.requests().empty());
}

TEST(Server, HeadAndOldClients) {
  World world;
  {
    RawClient client(world.port());
    client.send("HEAD /v1/models HTTP/1.1\r\nHost: test\r\n\r\n");
    const std::optional<Answer> head = client.answer(/*head_only=*/true);
    ASSERT_TRUE(head);
    EXPECT_NE(head->headers.at("content-length"), "0");
    EXPECT_EQ(client.request(get("/health"))->body, "{}");
  }
  {
    RawClient client(world.port());
    const std::string body = chat(R"(,"stream":true)");
    client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    const std::optional<Answer> stream = client.answer();
    ASSERT_TRUE(stream);
    EXPECT_FALSE(stream->headers.contains("transfer-encoding"));
    EXPECT_EQ(streamed_text(stream->body), "Hello world.");
    EXPECT_TRUE(client.wait_closed());
  }
  RawClient client(world.port());
  EXPECT_EQ(client.request("GET /health HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")->headers.at("connection"), "close");
  EXPECT_TRUE(client.wait_closed());
}

TEST(Server, PipelinedRequestsAreAnsweredInOrder) {
  World world;
  RawClient client(world.port());
  client.send(get("/health") + post(kChat, chat(R"(,"stream":true)")) + "\r\n" + get("/v1/models/fake") + post(kChat, chat()));
  EXPECT_EQ(client.answer()->body, "{}");
  EXPECT_EQ(streamed_text(client.answer()->body), "Hello world.");
  EXPECT_EQ(parse(client.answer()).at("id").as_string(), "fake");
  EXPECT_EQ(parse(client.answer()).at("object").as_string(), "chat.completion");
}

TEST(Server, ChunkedBodiesAndContinue) {
  World world;
  RawClient client(world.port());
  const std::string body = chat();
  client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.receive_until("HTTP/1.1 100 Continue\r\n\r\n"));
  client.answer(/*head_only=*/true);
  for (const char c : body) client.send("1\r\n" + std::string(1, c) + "\r\n");
  client.send("0\r\n\r\n");
  EXPECT_EQ(parse(client.answer()).at("object").as_string(), "chat.completion");
}

TEST(Server, ApiKeysAndTenants) {
  ServerOptions options;
  options.keys = *ApiKeys::parse("plain\nacme:secret", "keys");
  World world({}, options);
  RawClient client(world.port());
  expect_error(client.request(post(kChat, chat())), 401, "invalid_api_key", "needed");
  expect_error(client.request(post(kChat, chat(), "Authorization: Bearer wrong\r\n")), 401, "invalid_api_key", "not valid");
  expect_error(client.request(get("/v1/models")), 401, "invalid_api_key");
  EXPECT_EQ(client.request(get("/health"))->status, 200);
  EXPECT_EQ(client.request(post(kChat, chat(), "Authorization: Bearer plain\r\n"))->status, 200);
  EXPECT_EQ(client.request(post(kChat, chat(), "x-api-key: secret\r\n"))->status, 200);
  EXPECT_EQ(world.inference.requests()[0].tenant, "");
  EXPECT_EQ(world.inference.requests()[1].tenant, *options.keys.tenant_of("secret"));
}

// That an answer comes fast because its prompt was seen before tells whose it was: so nothing that was made of one tenant's prompt is used for another's.
TEST(Server, WhatATenantSentIsNewToOthers) {
  ServerOptions options;
  options.keys = *ApiKeys::parse("plain\nacme:secret", "keys");
  World world({}, options);
  RawClient client(world.port());
  const std::string text = "json " + std::string(500, 'x'), more = R"(,"response_format":{"type":"json_object"})";
  const auto num_encoded = [&](std::string_view path, const std::string& key, const std::string& body) {
    const size_t before = world.tokenizer.num_encoded_bytes;
    const std::optional<Answer> answer = client.request(post(path, body, "Authorization: Bearer " + key + "\r\n"));
    EXPECT_EQ(answer->status, 200) << answer->body;
    return world.tokenizer.num_encoded_bytes - before;
  };
  const auto chat_of = [&](const std::string& key, const std::string& salt) {
    const std::string salted = salt.empty() ? "" : R"(,"cache_salt":")" + salt + "\"";
    return num_encoded(kChat, key, R"({"model":"fake","messages":[{"role":"user","content":")" + text + R"("}])" + salted + more + "}");
  };
  const auto tokenize = [&](const std::string& key) { return num_encoded("/tokenize", key, R"({"prompt":")" + text + R"("})"); };
  EXPECT_GE(chat_of("plain", ""), text.size());
  EXPECT_LT(chat_of("plain", ""), 100u);
  EXPECT_GE(chat_of("secret", ""), text.size());
  EXPECT_LT(chat_of("secret", ""), 100u);
  EXPECT_GE(tokenize("plain"), text.size());
  EXPECT_LT(tokenize("plain"), 100u);
  EXPECT_GE(tokenize("secret"), text.size()) << "not even for those who ask for tokens alone";
  EXPECT_GE(chat_of("secret", "salt"), text.size());
  EXPECT_LT(chat_of("secret", "salt"), 100u);
  const std::vector<Request> requests = world.inference.requests();
  const auto scope = [&](size_t i) { return requests.at(i).constraint.scope; };
  EXPECT_FALSE(requests.at(0).constraint.spec.empty());
  EXPECT_EQ(scope(0), scope(1));
  EXPECT_NE(scope(0), scope(2));
  EXPECT_EQ(scope(2), scope(4)) << "schemas are the tenant's, whatever the salt";
}

TEST(Server, RetentionClassesByRequestHeaderTenantAndUse) {
  ServerOptions options;
  options.keys = *ApiKeys::parse("plain\nacme:secret", "keys");
  options.tenant_retention = {{*options.keys.tenant_of("secret"), "long"}};
  World world({}, options);
  RawClient client(world.port());
  const auto retention = [&](const std::string& body, const std::string& headers) {
    EXPECT_EQ(client.request(post(kChat, body, headers))->status, 200);
    return world.inference.requests().back().retention;
  };
  const std::string plain = "Authorization: Bearer plain\r\n", acme = "Authorization: Bearer secret\r\n", header = "X-DeepInfer-Retention: short\r\n";
  const std::string named = chat(R"(,"metadata":{"retention":"chat"})"), tools = chat(R"(,"tools":[{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(retention(named, acme + header), "chat");
  EXPECT_EQ(retention(tools, acme + header), "short");
  EXPECT_EQ(retention(tools, acme), "long");
  EXPECT_EQ(retention(tools, plain), "agent");
  EXPECT_EQ(retention(chat(), plain), "");
}

TEST(Server, CrossOriginOnlyWhenAllowed) {
  World closed;
  {
    RawClient client(closed.port());
    EXPECT_FALSE(client.request(get("/health", "Origin: http://a\r\n"))->headers.contains("access-control-allow-origin"));
    EXPECT_EQ(client.request("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: t\r\nOrigin: http://a\r\n\r\n")->status, 405);
  }
  ServerOptions options;
  options.cors_origins = {"http://a"};
  options.keys = *ApiKeys::parse("k", "keys");
  World world({}, options);
  RawClient client(world.port());
  const std::optional<Answer> preflight = client.request(
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: t\r\nOrigin: http://a\r\nAccess-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization,content-type\r\n\r\n");
  ASSERT_TRUE(preflight);
  EXPECT_EQ(preflight->status, 204);
  EXPECT_EQ(preflight->headers.at("access-control-allow-origin"), "http://a");
  EXPECT_EQ(preflight->headers.at("access-control-allow-headers"), "authorization,content-type");
  EXPECT_FALSE(client.request(get("/health", "Origin: http://b\r\n"))->headers.contains("access-control-allow-origin"));
  EXPECT_EQ(client.request(post(kChat, chat(), "Origin: http://a\r\n"))->headers.at("access-control-allow-origin"), "http://a") << "errors too";
}

TEST(Server, RequestIdsAreEchoedIfHarmless) {
  World world;
  RawClient client(world.port());
  EXPECT_EQ(client.request(get("/v1/models", "x-request-id: abc-1.2_3\r\n"))->headers.at("x-request-id"), "abc-1.2_3");
  EXPECT_EQ(client.request(get("/v1/models", "x-request-id: a b\r\n"))->headers.at("x-request-id").substr(0, 4), "req_");
}

TEST(Server, AFaultBeforeTheFirstTokenKeepsItsStatus) {
  World world({.fail_after = 0});
  RawClient client(world.port());
  const std::optional<Answer> answer = client.request(post(kChat, chat(R"(,"stream":true)")));
  expect_error(answer, 500, "internal_error", "a scripted fault");
  EXPECT_EQ(answer->headers.at("x-should-retry"), "false");
}

TEST(Server, AFaultInTheStreamEndsItWithoutSuccess) {
  World world({.step = 20ms, .fail_after = 3});
  RawClient client(world.port());
  const std::optional<Answer> answer = client.request(post(kChat, chat(R"(,"stream":true,"stream_options":{"include_usage":true})")));
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->status, 200);
  const std::vector<std::string> list = frames(answer->body);
  EXPECT_EQ(list.back(), "data: [DONE]");
  const json::value error = json::parse(list[list.size() - 2].substr(6));
  EXPECT_EQ(error.at("error").at("type").as_string(), "internal_error");
  EXPECT_EQ(answer->body.find("\"finish_reason\":\"s"), std::string::npos);
  EXPECT_EQ(answer->body.find("\"usage\":{"), std::string::npos);
  EXPECT_TRUE(client.wait_closed());
  RawClient other(world.port());
  expect_error(other.request(post(kChat, chat())), 500, "internal_error");
}

TEST(Server, SilentStreamsSayThatTheyLive) {
  ServerOptions options;
  options.header_delay = 50ms;
  options.keep_alive_interval = 50ms;
  World world({.paused = true}, options);
  RawClient client(world.port());
  client.send(post(kChat, chat(R"(,"stream":true)")));
  ASSERT_TRUE(client.receive_until(": keep-alive\n\n"));
  world.inference.resume();
  const std::optional<Answer> answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(streamed_text(answer->body), "Hello world.");
}

TEST(Server, EarlyHeadersComeWithoutAToken) {
  ServerOptions options;
  options.early_headers = true;
  World world({.paused = true}, options);
  RawClient client(world.port());
  client.send(post(kChat, chat(R"(,"stream":true)")));
  EXPECT_TRUE(client.receive_until("text/event-stream"));
}

TEST(Server, LogsOneLineARequest) {
  ServerOptions options;
  World world({}, options);
  RawClient client(world.port());
  client.request(get("/health"));
  const std::string id = client.request(post(kChat, chat()))->headers.at("x-request-id");
  client.request(post(kChat, "{"));
  const std::vector<std::string> log = world.wait_log(2);
  ASSERT_EQ(log.size(), 2u);
  const json::value line = json::parse(log[0]);
  EXPECT_EQ(line.at("id").as_string(), id);
  EXPECT_EQ(line.at("model").as_string(), "fake");
  EXPECT_EQ(line.at("status").as_int64(), 200);
  EXPECT_EQ(line.at("finish").as_string(), "stop");
  EXPECT_EQ(line.at("completion_tokens").as_int64(), 13);
  EXPECT_EQ(line.at("cached_tokens").as_int64(), 1);
  EXPECT_TRUE(line.at("ttft_ms").is_number());
  EXPECT_TRUE(line.at("tpot_ms").is_number());
  EXPECT_TRUE(line.at("e2e_ms").is_number());
  EXPECT_EQ(log[0].find("\"hi\""), std::string::npos) << "no prompt";
  EXPECT_EQ(json::parse(log[1]).at("status").as_int64(), 400);
}

// As many tokens are found of each prompt; those that come later are long.
TEST(RequestLog, TellsThatATenantsPromptsAreFoundLess) {
  ServerOptions options;
  options.keys = *ApiKeys::parse("acme:key", "keys");
  World world({.found = {.cached_tokens = 8, .match = {.tokens = 8}}}, options);
  RawClient client(world.port());
  size_t sent = 0;
  const auto send = [&](const std::string& text, size_t requests) {
    for (size_t i = 0; i < requests; ++i, ++sent) {
      const auto response = client.request(post(kChat, R"({"model":"fake","messages":[{"role":"user","content":")" + text + R"("}]})", "Authorization: Bearer key\r\n"));
      ASSERT_EQ(response->status, 200) << response->body;
    }
  };
  send("q", 150);
  for (const std::string& line : world.wait_log(150)) EXPECT_EQ(line.find("hit_rate_fell"), std::string::npos) << line;
  send(std::string(900, 'x'), 60);
  json::object fell;
  for (const std::string& line : world.wait_log(sent + 1))
    if (line.find("hit_rate_fell") != std::string::npos) {
      EXPECT_TRUE(fell.empty()) << "told once";
      fell = json::parse(line).as_object();
    }
  ASSERT_FALSE(fell.empty());
  EXPECT_EQ(fell.at("tenant").as_string(), "acme");
  EXPECT_LT(fell.at("hit_rate").as_double(), fell.at("usual_hit_rate").as_double() / 2 + 0.01);
  const std::string metrics = client.request(get("/metrics", "Authorization: Bearer key\r\n"))->body;
  EXPECT_NE(metrics.find("deepinfer_tenant_hit_rate_falls_total{model_name=\"fake\"} 1"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer::api
