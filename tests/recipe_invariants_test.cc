// Control tokens come from the structure of a conversation alone, whatever its texts spell: generated conversations in every dialect.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/rng.h"
#include "recipe/dialect.h"
#include "recipe_golden.h"

namespace deepinfer::recipe {
namespace {

constexpr Dialect kDialects[] = {Dialect::kV4Preview, Dialect::kV4, Dialect::kV41};

// Conversations of random shape whose texts come from `text`.
class Generator {
 public:
  Generator(uint64_t seed, std::function<std::string(Rng&)> text) : rng_(seed), text_(std::move(text)) {}

  Conversation conversation() {
    Conversation out;
    const uint64_t num_turns = 1 + rng_.below(6);
    for (uint64_t i = 0; i < num_turns; ++i) add_turn(out);
    if (one_in(2)) add_tools(out);
    if (one_in(3)) out.thinking = one_in(2);
    out.effort = static_cast<Effort>(rng_.below(5));
    if (one_in(5)) out.effort_number = 1 + static_cast<int32_t>(rng_.below(100));
    if (one_in(3)) out.history_reasoning = one_in(2) ? HistoryReasoning::kKeep : HistoryReasoning::kReference;
    if (one_in(4)) out.response_format.kind = ResponseFormat::Kind::kJsonObject;
    if (one_in(6)) {
      out.response_format.kind = ResponseFormat::Kind::kJsonSchema;
      out.response_format.schema = boost::json::object{{text(), text()}};
    }
    if (out.tools_active() && one_in(4)) {
      out.tool_choice = ToolChoice::kRequired;
      out.thinking = false;
    }
    if (one_in(5) && out.tools.empty() && out.messages.back().role == Role::kAssistant && out.messages.back().tool_calls.empty()) {
      out.messages.back().prefix = true;
    }
    return out;
  }

 private:
  bool one_in(uint64_t n) { return rng_.below(n) == 0; }
  std::string text() { return text_(rng_); }

  void add_content(Conversation& out, Message& message, bool images) {
    message.content = text();
    if (!images || !one_in(3)) return;
    message.images.push_back({.offset = 0, .image = static_cast<uint32_t>(out.images.size())});
    out.images.push_back({.url = "https://images.example/" + text()});
    message.content.insert(0, "\n\n");
  }

  void add_turn(Conversation& out) {
    constexpr Role kRoles[] = {Role::kSystem, Role::kDeveloper, Role::kUser, Role::kUser, Role::kAssistant, Role::kAssistant, Role::kLatestReminder};
    Message message{.role = kRoles[rng_.below(std::size(kRoles))]};
    add_content(out, message, message.role == Role::kUser);
    message.name = text();
    if (message.role != Role::kAssistant) return out.messages.push_back(std::move(message));
    if (one_in(2)) message.reasoning = text();
    for (uint64_t i = rng_.below(3); i > 0; --i) message.tool_calls.push_back(call());
    const std::vector<ToolCall> calls = message.tool_calls;
    out.messages.push_back(std::move(message));
    for (size_t i = calls.size(); i > 0; --i) {
      Message result{.role = Role::kTool, .tool_call_id = calls[i - 1].id};
      add_content(out, result, true);
      out.messages.push_back(std::move(result));
    }
  }

  ToolCall call() {
    ToolCall out{.id = std::to_string(num_calls_++), .name = text()};
    boost::json::object arguments;
    for (uint64_t i = rng_.below(3); i > 0; --i) {
      arguments[text()] = one_in(2) ? boost::json::value(text()) : boost::json::value(boost::json::object{{text(), boost::json::array{text(), 1, 0.5}}});
    }
    out.arguments = one_in(4) ? text() : boost::json::serialize(arguments);
    return out;
  }

  void add_tools(Conversation& out) {
    for (uint64_t i = 1 + rng_.below(3); i > 0; --i) {
      ToolDefinition tool{.name = text(), .description = text()};
      tool.parameters = boost::json::object{{"type", "object"}, {"properties", boost::json::object{{text(), boost::json::object{{"description", text()}}}}}};
      out.tools.push_back(std::move(tool));
    }
  }

  Rng rng_;
  std::function<std::string(Rng&)> text_;
  int num_calls_ = 0;
};

class RecipeInvariants : public ::testing::Test {
 protected:
  RecipeInvariants() : tokenizer_(testing::nano_tokenizer()) {
    for (const auto& token : tokenizer_->added_tokens()) added_.insert(token.id);
  }

  Prompt render(Dialect dialect, const Conversation& conversation) const {
    auto renderer = make_dialect_renderer(dialect, *tokenizer_);
    CHECK(renderer);
    auto prompt = (*renderer)->render(conversation);
    CHECK(prompt);
    return std::move(*prompt);
  }

  // B and C of the contract: as many control tokens as the structure has, and the ids spell the prompt.
  void expect_structure_only(const Prompt& prompt) const {
    const std::vector<TokenId> ids = prompt_tokens(prompt, *tokenizer_);
    size_t num_control = 0, num_added = 0;
    for (const Segment& segment : prompt.segments) num_control += segment.kind == Segment::Kind::kPlain ? 0 : 1;
    for (const TokenId id : ids) num_added += added_.count(id);
    EXPECT_EQ(num_added, num_control);
    std::string spelt;
    for (const TokenId id : ids) spelt += tokenizer_->token_bytes(id);
    EXPECT_EQ(spelt, prompt_text(prompt));
  }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::set<TokenId> added_;
};

TEST_F(RecipeInvariants, WithoutSpellingsTheIdsAreThoseOfTheWholeText) {
  Generator generator(1, [](Rng& rng) {
    const char* const words[] = {"a", " the", "\n", "\n\n", "é", "你好", "<", ">", "/", "\"", "{}", "tool", " 42", "👩‍💻", "name=", "\x7f", "Us", "\xe2\x80\xa8"};
    std::string out;
    for (uint64_t i = rng.below(8); i > 0; --i) out += words[rng.below(std::size(words))];
    return out;
  });
  for (int round = 0; round < 1500; ++round) {
    const Conversation conversation = generator.conversation();
    for (const Dialect dialect : kDialects) {
      const Prompt prompt = render(dialect, conversation);
      std::vector<TokenId> whole;
      tokenizer_->encode(prompt_text(prompt), tokenizer::Recognize::kAll, whole);
      EXPECT_EQ(prompt_tokens(prompt, *tokenizer_), whole) << prompt_text_marked(prompt);
      expect_structure_only(prompt);
    }
  }
}

TEST_F(RecipeInvariants, NoTextBecomesAControlToken) {
  const auto added = tokenizer_->added_tokens();
  Generator generator(2, [&](Rng& rng) {
    const char* const parts[] = {"<", "</", ">", "｜", "<｜", "｜>", "DSML", "｜DSML｜", "think>", "User", "<｜Us", "er｜>", "▁", "begin▁of", "\n\n", " ", "calls>",
                                 "invoke name=\"", "<tool_result>", "\xef\xbd", "\x9c", "a"};
    std::string out;
    for (uint64_t i = rng.below(10); i > 0; --i) {
      out += rng.below(3) == 0 ? added[rng.below(added.size())].spelling : std::string(parts[rng.below(std::size(parts))]);
    }
    return out;
  });
  for (int round = 0; round < 1500; ++round) {
    const Conversation conversation = generator.conversation();
    for (const Dialect dialect : kDialects) expect_structure_only(render(dialect, conversation));
  }
}

TEST_F(RecipeInvariants, ShortPromptsHaveTheNumberOfTokensOfTheReference) {
  Conversation conversation;
  conversation.thinking = false;
  const auto count = [&](std::string text) {
    conversation.messages = {{.content = std::move(text)}};
    return prompt_tokens(render(Dialect::kV4, conversation), *tokenizer_).size();
  };
  EXPECT_EQ(count(""), 4u);
  EXPECT_EQ(count("x"), 5u);
}

}  // namespace
}  // namespace deepinfer::recipe
