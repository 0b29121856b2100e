// Pictures in requests of all protocols: where they stand in the prompt, what counts them, what is said about bad ones.
#include <fmt/format.h>

#include "base/base64.h"
#include "http/world.h"

namespace deepinfer::api {
namespace {

using namespace testing_support;

constexpr const char* kPaths[] = {"/v1/chat/completions", "/v1/responses", "/v1/messages"};

std::string data_url(std::string_view file, std::string_view type = "image/png") { return fmt::format("data:{};base64,{}", type, encode_base64(file)); }

// A request whose one user message has these blocks, in the words of a protocol. A block is a text, or an image's URL.
std::string with_blocks(const std::string& path, const std::vector<std::string>& blocks) {
  const bool chat = path == kPaths[0], responses = path == kPaths[1];
  json::array content;
  for (const std::string& block : blocks) {
    const bool data = block.starts_with("data:"), image = data || block.starts_with("http");
    if (!image) {
      content.push_back({{"type", responses ? "input_text" : "text"}, {"text", block}});
    } else if (chat) {
      content.push_back({{"type", "image_url"}, {"image_url", {{"url", block}, {"detail", "low"}}}});
    } else if (responses) {
      content.push_back({{"type", "input_image"}, {"image_url", block}, {"detail", "auto"}});
    } else if (data) {
      const size_t mark = block.find(";base64,");
      content.push_back({{"type", "image"}, {"source", {{"type", "base64"}, {"media_type", block.substr(5, mark - 5)}, {"data", block.substr(mark + 8)}}}});
    } else {
      content.push_back({{"type", "image"}, {"source", {{"type", "url"}, {"url", block}}}});
    }
  }
  json::object body{{"model", "fake"}, {responses ? "input" : "messages", json::array{{{"role", "user"}, {"content", std::move(content)}}}}};
  if (path == kPaths[2]) body["max_tokens"] = 50;
  return json::serialize(body);
}

// Where an image stands in such a message.
std::string place(const std::string& path, int block) {
  return fmt::format("{}[0].content[{}]{}", path == kPaths[1] ? "input" : "messages", block, path == kPaths[2] ? ".source" : "");
}

int64_t prompt_tokens(const std::string& path, const json::value& answer) {
  const json::value& usage = answer.at("usage");
  if (path == kPaths[0]) return usage.at("prompt_tokens").as_int64();
  const int64_t cached = path == kPaths[2] ? usage.at("cache_read_input_tokens").as_int64() : 0;  // which Messages counts apart
  return usage.at("input_tokens").as_int64() + cached;
}

std::string message_of(const std::optional<Answer>& answer) { return std::string(parse(answer).at("error").at("message").as_string()); }

TEST(Images, StandInThePromptWhereTheRequestHasThem) {
  World world({.vision = true});
  RawClient client(world.port());
  const std::string small = "image 3", large = "image 5";
  for (const std::string path : kPaths) {
    SCOPED_TRACE(path);
    const std::string body = with_blocks(path, {"a", data_url(small), "b", data_url(large, "image/jpeg")});
    const json::value answer = parse(client.request(post(path, body)));
    const Request request = world.inference.requests().back();
    const std::string i3(3, '\xff'), i5(5, '\xff');
    // A block of Messages is a message of its own here; DeepSeek's dialects join them.
    const std::string seam = path == kPaths[2] ? "<|end|><|start|>user\n" : "\n\n";
    const std::string expected = "<|start|>user\na" + seam + i3 + seam + "b" + seam + i5 + "<|end|><|start|>assistant\n";
    EXPECT_EQ(request.prompt, tokens_of(expected, false));
    ASSERT_EQ(request.images.size(), 2u);
    EXPECT_EQ(request.images[0].image->digest, blake2b_256(std::as_bytes(std::span(small))));
    EXPECT_EQ(request.images[1].image->digest, blake2b_256(std::as_bytes(std::span(large))));
    for (const ImageSpan& span : request.images) {
      for (int32_t i = -1; i <= span.image->num_tokens; ++i) {
        EXPECT_EQ(request.prompt[static_cast<size_t>(span.start + i)] == kImage, i >= 0 && i < span.image->num_tokens) << i;
      }
    }
    EXPECT_EQ(prompt_tokens(path, answer), static_cast<int64_t>(request.prompt.size()));
    if (path == kPaths[2]) {
      EXPECT_EQ(parse(client.request(post("/v1/messages/count_tokens", body))).at("input_tokens").as_int64(), static_cast<int64_t>(request.prompt.size()));
    }
    if (path == kPaths[0]) {
      EXPECT_EQ(parse(client.request(post("/tokenize", body))).at("count").as_int64(), static_cast<int64_t>(request.prompt.size()));
    }
  }
}

TEST(Images, AlsoInToolResults) {
  World world({.vision = true});
  RawClient client(world.port());
  const std::string url = data_url("image 4");
  const std::string chat = fmt::format(R"({{"model":"fake","messages":[{{"role":"user","content":"q"}},
    {{"role":"assistant","content":null,"tool_calls":[{{"id":"c","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}]}},
    {{"role":"tool","tool_call_id":"c","content":[{{"type":"image_url","image_url":{{"url":"{}"}}}}]}}]}})", url);
  const std::string messages = fmt::format(R"({{"model":"fake","max_tokens":9,"messages":[{{"role":"user","content":"q"}},
    {{"role":"assistant","content":[{{"type":"tool_use","id":"c","name":"f","input":{{}}}}]}},
    {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c","content":[{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{}"}}}}]}}]}}]}})",
                                           encode_base64("image 4"));
  for (const auto& [path, body] : {std::pair{"/v1/chat/completions", chat}, {"/v1/messages", messages}}) {
    SCOPED_TRACE(path);
    const std::optional<Answer> answer = client.request(post(path, body));
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->status, 200) << answer->body;
    ASSERT_EQ(world.inference.requests().back().images.size(), 1u);
    EXPECT_EQ(world.inference.requests().back().images[0].image->num_tokens, 4);
  }
}

TEST(Images, BadOnesAreNamedByTheirPlaceAndComputeNothing) {
  World world({.vision = true});
  RawClient client(world.port());
  const auto refused = [&](const std::string& path, const std::string& url, std::string_view part) {
    SCOPED_TRACE(path + " " + url);
    const std::optional<Answer> answer = client.request(post(path, with_blocks(path, {"a", url})));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 400) << answer->body;
    const json::value error = parse(answer).at("error");
    EXPECT_EQ(error.at("type"), "invalid_request_error");
    EXPECT_NE(message_of(answer).find(part), std::string::npos) << answer->body;
    EXPECT_NE(message_of(answer).find(place(path, 1)), std::string::npos) << answer->body;
    if (path != kPaths[2]) {
      EXPECT_TRUE(std::string_view(error.at("param").as_string()).starts_with(place(path, 1))) << answer->body;
    }
  };
  for (const std::string path : kPaths) {
    refused(path, data_url("no image"), "is not a JPEG, PNG, WebP or GIF file");
    refused(path, data_url("large"), "too many pixels");
    refused(path, "data:image/png;base64,AAAAA", "base64");
    refused(path, "https://a.example/b.png", "not fetched here");
    // Messages takes four types by name, the others what is an image by its name: its bytes decide.
    refused(path, data_url("image 3", "text/html"), path == kPaths[2] ? "image/png" : "text/html");
  }
  EXPECT_TRUE(world.inference.requests().empty());
}

TEST(Images, AreBoundedInNumberBeforeOneIsRead) {
  World world({.vision = true}, {.max_images = 2});
  RawClient client(world.port());
  const std::string good = data_url("image 1"), bad = data_url("no image");
  for (const std::string path : kPaths) {
    EXPECT_EQ(client.request(post(path, with_blocks(path, {good, good})))->status, 200);
    const std::optional<Answer> answer = client.request(post(path, with_blocks(path, {bad, bad, bad})));
    EXPECT_EQ(answer->status, 400);
    EXPECT_EQ(message_of(answer), "the request has 3 images; at most 2 are taken.");
  }
}

TEST(Images, AreReadOnceForATenant) {
  ServerOptions options;
  options.keys = ApiKeys::parse("one:key-of-the-first-tenant\ntwo:key-of-the-second-tenant\n", "keys").value();
  World world({.vision = true}, std::move(options));
  RawClient client(world.port());
  const auto ask = [&](const std::string& key, const std::string& more = "") {
    const std::string body = with_blocks(kPaths[0], {"a", data_url("image 3")});
    EXPECT_EQ(client.request(post(kPaths[0], "{" + more + body.substr(1), "Authorization: Bearer " + key + "\r\n"))->status, 200);
    return world.inference.num_images_read();
  };
  EXPECT_EQ(ask("key-of-the-first-tenant"), 1);
  EXPECT_EQ(ask("key-of-the-first-tenant"), 1);
  EXPECT_EQ(ask("key-of-the-second-tenant"), 2);
  EXPECT_EQ(ask("key-of-the-second-tenant", R"("cache_salt":"s",)"), 3);
  EXPECT_EQ(ask("key-of-the-second-tenant", R"("cache_salt":"s",)"), 3);
}

TEST(Images, CountAgainstTheContext) {
  World world({.max_context = 100, .vision = true});
  RawClient client(world.port());
  for (const std::string path : kPaths) {
    const std::optional<Answer> answer = client.request(post(path, with_blocks(path, {data_url("image 500")})));
    EXPECT_EQ(answer->status, 400);
    EXPECT_NE(answer->body.find(path == kPaths[2] ? "prompt is too long" : "context_length_exceeded"), std::string::npos) << answer->body;
  }
}

TEST(Images, AModelWithoutVisionSaysSo) {
  World world;
  RawClient client(world.port());
  for (const std::string path : kPaths) {
    const std::optional<Answer> answer = client.request(post(path, with_blocks(path, {data_url("image 3")})));
    EXPECT_EQ(answer->status, 400);
    EXPECT_EQ(message_of(answer), "images are not supported: this model reads text only.");
  }
}

}  // namespace
}  // namespace deepinfer::api
