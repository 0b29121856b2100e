#include "recipe/dialect.h"

#include <gtest/gtest.h>

#include "recipe/fake_tokenizer.h"

namespace deepinfer::recipe {
namespace {

FakeTokenizer vocabulary(std::vector<const char*> spellings) {
  std::vector<tokenizer::Tokenizer::AddedToken> added;
  for (const char* spelling : spellings) added.push_back({static_cast<TokenId>(added.size()), spelling, false});
  return FakeTokenizer(std::move(added));
}

FakeTokenizer v41_vocabulary() {
  return vocabulary({"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜System｜>", "<｜latest_reminder｜>", "<think>",
                     "</think>", "｜DSML｜", "<｜deepseek_image｜>"});
}

std::string render(Dialect dialect, const Conversation& conversation, const DialectOptions& options = {}) {
  auto renderer = make_dialect_renderer(dialect, v41_vocabulary(), options);
  EXPECT_TRUE(renderer);
  auto prompt = (*renderer)->render(conversation);
  return prompt ? prompt_text(*prompt) : prompt.error().message;
}

TEST(Dialect, IsPickedByVocabularyAndConfiguration) {
  EXPECT_EQ(pick_dialect("", vocabulary({"<think>"})), Dialect::kTemplate);
  EXPECT_EQ(pick_dialect("", v41_vocabulary()), Dialect::kV41);
  EXPECT_EQ(pick_dialect("", vocabulary({"｜DSML｜", "<｜deepseek_image｜>"})), Dialect::kV41);
  const FakeTokenizer v4 = vocabulary({"｜DSML｜"});
  EXPECT_EQ(pick_dialect(R"({"dspark_block_size": 5})", v4), Dialect::kV4);
  EXPECT_EQ(pick_dialect(R"({"text_config": {"dspark_block_size": 5}})", v4), Dialect::kV4);
  EXPECT_EQ(pick_dialect(R"({"hidden_size": 5})", v4), Dialect::kV4Preview);
  EXPECT_EQ(pick_dialect("no json", v4), Dialect::kV4Preview);
}

TEST(Dialect, HasAName) {
  for (const Dialect dialect : {Dialect::kTemplate, Dialect::kV4Preview, Dialect::kV4, Dialect::kV41}) {
    EXPECT_EQ(dialect_of_name(dialect_name(dialect)), dialect);
  }
  EXPECT_FALSE(dialect_of_name("v3"));
}

TEST(Dialect, NeedsItsTokens) {
  const auto made = make_dialect_renderer(Dialect::kV41, vocabulary({"｜DSML｜"}));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kUnsupported);
  EXPECT_NE(made.error().message.find("<｜begin▁of▁sentence｜>"), std::string::npos);
}

TEST(Dialect, ServerSettingsAndRequestsDecideTogether) {
  Conversation conversation;
  conversation.effort = Effort::kLow;
  conversation.messages = {{.role = Role::kUser, .content = "a"},
                           {.role = Role::kAssistant, .content = "b", .reasoning = "r"},
                           {.role = Role::kDeveloper, .content = "d"}};
  EXPECT_EQ(render(Dialect::kV4, conversation),
            "<｜begin▁of▁sentence｜><｜User｜>a<｜Assistant｜></think>b<｜end▁of▁sentence｜><｜User｜>d<｜Assistant｜><think>");
  EXPECT_EQ(render(Dialect::kV4, conversation, {.history_reasoning = HistoryReasoning::kKeep}),
            "<｜begin▁of▁sentence｜><｜User｜>a<｜Assistant｜><think>r</think>b<｜end▁of▁sentence｜><｜User｜>d<｜Assistant｜><think>");
  EXPECT_EQ(render(Dialect::kV4, conversation, {.developer_as = DeveloperAs::kSystem}),
            "<｜begin▁of▁sentence｜>d<｜User｜>a<｜Assistant｜><think>r</think>b<｜end▁of▁sentence｜><｜Assistant｜><think>");
  conversation.history_reasoning = HistoryReasoning::kReference;  // the request's wish wins
  EXPECT_EQ(render(Dialect::kV4, conversation, {.history_reasoning = HistoryReasoning::kKeep}),
            "<｜begin▁of▁sentence｜><｜User｜>a<｜Assistant｜></think>b<｜end▁of▁sentence｜><｜User｜>d<｜Assistant｜><think>");
}

TEST(Dialect, TasksAreForTheLastMessageAndKnownTokens) {
  Conversation conversation;
  conversation.messages = {{.role = Role::kUser, .content = "a", .task = Task::kQuery}};
  EXPECT_EQ(render(Dialect::kV4, conversation), "this model's vocabulary has no token for this task");
  conversation.messages.push_back({.role = Role::kUser, .content = "b"});
  EXPECT_EQ(render(Dialect::kV4, conversation), "a task is for the last message: title an assistant's, the others a user's");
}

TEST(Dialect, OutputIsReadAsThePromptBegan) {
  Conversation conversation;
  conversation.messages = {{.role = Role::kUser, .content = "json"}};
  auto renderer = make_dialect_renderer(Dialect::kV41, v41_vocabulary());
  const auto syntax = [&] { return (*renderer)->render(conversation)->syntax; };
  EXPECT_EQ(syntax().start, AnswerSyntax::Start::kReasoning);
  conversation.thinking = false;
  EXPECT_EQ(syntax().start, AnswerSyntax::Start::kAnswer);
  EXPECT_FALSE(syntax().parse_tool_calls);
  conversation.response_format.kind = ResponseFormat::Kind::kJsonObject;
  EXPECT_EQ(syntax().start, AnswerSyntax::Start::kJson);
  conversation.response_format.kind = ResponseFormat::Kind::kText;
  conversation.tools = {{.name = "f", .parameters = boost::json::object{{"properties", boost::json::object{{"p", nullptr}}}}}};
  EXPECT_TRUE(syntax().parse_tool_calls);
  EXPECT_EQ(syntax().tools[0].properties, std::vector<std::string>{"p"});
  conversation.tool_choice = ToolChoice::kNone;
  EXPECT_FALSE(syntax().parse_tool_calls);
  conversation.tool_choice = ToolChoice::kRequired;
  EXPECT_EQ(syntax().start, AnswerSyntax::Start::kToolCalls);
}

}  // namespace
}  // namespace deepinfer::recipe
