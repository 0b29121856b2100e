#include "api/routes.h"

#include <gtest/gtest.h>

namespace deepinfer::api {
namespace {

TEST(Routes, FindEndpoints) {
  EXPECT_EQ(find_route("/v1/chat/completions").endpoint, Endpoint::kChat);
  EXPECT_EQ(find_route("/chat/completions?x=1").endpoint, Endpoint::kChat);
  EXPECT_EQ(find_route("/beta/chat/completions").endpoint, Endpoint::kChat);
  EXPECT_EQ(find_route("/beta/v1/completions/").endpoint, Endpoint::kCompletions);
  EXPECT_EQ(find_route("/beta/models").endpoint, Endpoint::kUnknown);
  EXPECT_EQ(find_route("/v1/models").endpoint, Endpoint::kModels);
  EXPECT_EQ(find_route("/v1/models/a%2Fb").id, "a/b");
  EXPECT_EQ(find_route("/v1/models/a/b").id, "a/b");
  EXPECT_EQ(find_route("/tokenize").endpoint, Endpoint::kTokenize);
  EXPECT_TRUE(find_route("/v1/embeddings").known_elsewhere);
  EXPECT_TRUE(find_route("/v1/audio/speech").known_elsewhere);
  EXPECT_FALSE(find_route("/v1/audiobook").known_elsewhere);
  for (const char* target : {"", "/", "*", "/v1", "/v1/", "//", "/v1chat/completions", "/v1/v1/models", "http://a/v1/models"}) {
    EXPECT_EQ(find_route(target).endpoint, Endpoint::kUnknown) << target;
  }
}

TEST(Routes, FindThoseOfEachProtocol) {
  EXPECT_EQ(find_route("/v1/responses/resp_1?stream=true").endpoint, Endpoint::kResponse);
  EXPECT_EQ(find_route("/v1/responses/resp_1?stream=true").id, "resp_1");
  EXPECT_EQ(find_route("/responses/a%20b/cancel").id, "a b");
  EXPECT_EQ(find_route("/v1/responses/r/input_items/").endpoint, Endpoint::kResponseInputItems);
  EXPECT_EQ(find_route("/v1/responses/r/other").endpoint, Endpoint::kUnknown);
  EXPECT_TRUE(find_route("/v1/responses/compact").known_elsewhere);
  EXPECT_TRUE(find_route("/v1/conversations/c").known_elsewhere);
  EXPECT_EQ(find_route("/responses/input_tokens").endpoint, Endpoint::kInputTokens);
  EXPECT_EQ(find_route("/anthropic/v1/messages").endpoint, Endpoint::kMessages);
  EXPECT_EQ(find_route("/anthropic/v1/chat/completions").endpoint, Endpoint::kUnknown);
  EXPECT_EQ(find_route("/messages/count_tokens").endpoint, Endpoint::kCountTokens);
  EXPECT_EQ(find_route("/v1/messages/batches").shape, ErrorShape::kAnthropic);
  EXPECT_EQ(find_route("/v1/messagesx").shape, ErrorShape::kOpenAi);
  EXPECT_TRUE(allows(Endpoint::kResponse, "DELETE"));
  EXPECT_TRUE(allows(Endpoint::kResponse, "HEAD"));
  EXPECT_FALSE(allows(Endpoint::kResponse, "GET, DELETE"));
  EXPECT_FALSE(allows(Endpoint::kResponse, "POST"));
  EXPECT_EQ(query_value("a=1&b=%41&c&d=", "b"), "A");
  EXPECT_EQ(query_value("a=1&b=%41&c&d=", "c"), "");
  EXPECT_EQ(query_value("a=1&bb=2", "b"), std::nullopt);
}

}  // namespace
}  // namespace deepinfer::api
