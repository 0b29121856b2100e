// Chat templates with the real vocabularies of their models: ids of the goldens, and of a client's text that spells control tokens
// (ids_safe). Needs the downloaded models; rendering alone is tested in recipe/ without them.
#include <gtest/gtest.h>

#include "recipe/chat_template.h"
#include "recipe/golden_templates.h"
#include "vocabulary_files.h"

namespace deepinfer {
namespace {

std::vector<TokenId> ids_of(const boost::json::value& list) {
  std::vector<TokenId> ids;
  for (const auto& id : list.as_array()) ids.push_back(static_cast<TokenId>(id.as_int64()));
  return ids;
}

class ChatTemplateGoldens : public ::testing::TestWithParam<std::pair<const char*, const char*>> {
 protected:
  void SetUp() override {
    const auto path = testing::model_path(GetParam().second);
    if (!path) GTEST_SKIP() << GetParam().second << " is not in DEEPINFER_TEST_MODELS or ~/.cache/deepinfer/models";
    auto opened = testing::tokenizer_from_gguf(*path);
    ASSERT_TRUE(opened) << opened.error().message;
    tokenizer_ = std::move(opened).value();
    auto made = recipe::ChatTemplate::create(recipe::read_golden(GetParam().first, "chat_template.jinja"), *tokenizer_);
    ASSERT_TRUE(made) << made.error().message;
    template_ = std::move(made).value();
  }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<recipe::ChatTemplate> template_;
};

TEST_P(ChatTemplateGoldens, Ids) {
  EXPECT_EQ(template_->note(), "");
  EXPECT_FALSE(template_->composes_tokens());
  const auto golden = boost::json::parse(recipe::read_golden(GetParam().first, "templates.json"));
  int num_compared = 0;
  for (const auto& test : golden.at("cases").as_array()) {
    SCOPED_TRACE(std::string(test.at("name").as_string()));
    const auto prompt = template_->render(recipe::golden_conversation(test));
    ASSERT_TRUE(prompt) << prompt.error().message;
    EXPECT_EQ(recipe::prompt_text(*prompt), std::string_view(test.at("rendered").as_string()));
    const auto ids = recipe::prompt_tokens(*prompt, *tokenizer_);
    const auto* safe = test.as_object().if_contains("ids_safe");
    if (safe == nullptr && test.at("name").as_string() == "control_strings_in_content") {
      EXPECT_NE(ids, ids_of(test.at("ids")));  // those hold the client's spellings as control tokens
      continue;
    }
    EXPECT_EQ(ids, ids_of(safe != nullptr ? *safe : test.at("ids")));
    ++num_compared;
  }
  EXPECT_GE(num_compared, 6);
}

// Invariants B and C with real merges: every control token's spelling as a user's text, alone and between letters.
TEST_P(ChatTemplateGoldens, SpellingsStayText) {
  for (const auto& token : tokenizer_->added_tokens()) {
    for (const std::string& text : {token.spelling, "a" + token.spelling + "b"}) {
      recipe::Conversation conversation;
      conversation.messages = {{.role = recipe::Role::kUser, .content = text}};
      const auto prompt = template_->render(conversation);
      ASSERT_TRUE(prompt) << prompt.error().message;
      int num_special = 0;
      for (const auto& segment : prompt->segments) num_special += segment.kind == recipe::Segment::Kind::kSpecial ? 1 : 0;
      std::string decoded;
      int num_added = 0;
      for (const TokenId id : recipe::prompt_tokens(*prompt, *tokenizer_)) {
        decoded += tokenizer_->token_bytes(id);
        for (const auto& added : tokenizer_->added_tokens()) num_added += added.id == id ? 1 : 0;
      }
      EXPECT_EQ(num_added, num_special) << text;
      EXPECT_EQ(decoded, recipe::prompt_text(*prompt));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ChatTemplateGoldens,
                         ::testing::Values(std::pair(recipe::kGoldenTemplates[0], "smollm2-135m-instruct-q4_1.gguf"),
                                           std::pair(recipe::kGoldenTemplates[1], "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
                                           std::pair(recipe::kGoldenTemplates[2], "deepseek-r1-distill-qwen-7b-vocab.gguf")),
                         [](const auto& info) {
                           std::string name = info.param.first;
                           std::erase_if(name, [](char c) { return !isalnum(static_cast<unsigned char>(c)); });
                           return name;
                         });

}  // namespace
}  // namespace deepinfer
