// What the tests of the server share: a whole server over a scripted engine, and readers of its answers.
#pragma once

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/server.h"
#include "eventually.h"
#include "http/fake_model.h"
#include "http/raw_client.h"
#include "recipe/json_reader.h"

namespace deepinfer::testing_support {

namespace json = boost::json;
using namespace std::chrono_literals;
using api::Server;
using api::ServerOptions;

// A server with everything under it. The log is kept.
struct World {
  explicit World(FakeInference::Options engine = {}, ServerOptions options = {}) : inference(std::move(engine)) {
    options.port = 0;
    options.log.write = [this](std::string_view line) {
      const std::lock_guard lock(mu);
      log.emplace_back(line);
    };
    Result<std::unique_ptr<Server>> started = Server::start(std::move(options), {.inference = inference, .tokenizer = tokenizer, .renderer = &renderer});
    EXPECT_TRUE(started) << started.error().message;
    if (started) server = std::move(*started);
  }
  uint16_t port() const { return server->port(); }
  std::vector<std::string> log_lines() {
    const std::lock_guard lock(mu);
    return log;
  }
  // Waits until the log has this many lines.
  std::vector<std::string> wait_log(size_t count) {
    eventually([&] { return log_lines().size() >= count; });
    return log_lines();
  }

  FakeTokenizer tokenizer;
  FakeRenderer renderer;
  FakeInference inference;
  std::mutex mu;
  std::vector<std::string> log;
  std::unique_ptr<Server> server;
};

constexpr std::string_view kChat = "/v1/chat/completions";

inline std::string chat(std::string_view more = "") {
  return R"({"model":"fake","messages":[{"role":"user","content":"hi"}])" + std::string(more) + "}";
}

inline json::value parse(const std::optional<Answer>& answer) {
  EXPECT_TRUE(answer.has_value());
  if (!answer) return nullptr;
  std::optional<json::value> value = recipe::parse_json(answer->body);
  EXPECT_TRUE(value) << answer->body;
  return value.value_or(nullptr);
}

// The data of each frame of a stream.
inline std::vector<std::string> frames(const std::string& body) {
  std::vector<std::string> out;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << "a frame is not closed";
    if (end == std::string::npos) break;
    out.push_back(body.substr(at, end - at));
    at = end + 2;
  }
  return out;
}

inline std::string streamed_text(const std::string& body, int64_t choice = 0, const char* field = "content") {
  std::string out;
  for (const std::string& frame : frames(body)) {
    if (frame.substr(0, 6) != "data: " || frame == "data: [DONE]") continue;
    const json::value value = json::parse(frame.substr(6));
    if (!value.as_object().contains("choices")) continue;
    for (const json::value& item : value.at("choices").as_array()) {
      if (item.at("index").as_int64() != choice) continue;
      const json::value* text = item.at("delta").as_object().if_contains(field);
      if (text != nullptr && text->is_string()) out += std::string_view(text->as_string());
    }
  }
  return out;
}

inline void expect_error(const std::optional<Answer>& answer, int status, std::string_view code, std::string_view part = "") {
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, status) << answer->raw;
  const json::value body = parse(answer);
  EXPECT_EQ(body.at("error").at("code").as_string(), code);
  EXPECT_NE(std::string_view(body.at("error").at("message").as_string()).find(part), std::string_view::npos) << answer->body;
}

}  // namespace deepinfer::testing_support
