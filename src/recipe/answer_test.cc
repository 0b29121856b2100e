// Chat answers against golden streams (tests/golden/recipe/chat_streams.json), in its canonical form: neighbouring deltas of one
// field joined, null equal to absent.
#include "recipe/answer.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fstream>
#include <sstream>

namespace deepinfer::recipe {
namespace {

namespace json = boost::json;

// A vocabulary that grows as a test names tokens.
class NamedTokens final : public tokenizer::Tokenizer {
 public:
  TokenId add(std::string_view text) const {
    bytes_.push_back(std::make_unique<std::string>(text));
    return static_cast<TokenId>(bytes_.size()) - 1;
  }
  void encode(std::string_view, tokenizer::Recognize, std::vector<TokenId>&) const override {}
  int32_t vocab_size() const override { return static_cast<int32_t>(bytes_.size()); }
  std::optional<TokenId> special_id(std::string_view) const override { return std::nullopt; }
  std::span<const AddedToken> added_tokens() const override { return {}; }
  std::string_view token_bytes(TokenId id) const override { return *bytes_[static_cast<size_t>(id)]; }
  bool is_special(TokenId) const override { return false; }
  std::optional<TokenId> bos_id() const override { return std::nullopt; }
  std::optional<TokenId> eos_id() const override { return std::nullopt; }
  bool add_bos() const override { return false; }
  std::span<const TokenId> stop_ids() const override { return {}; }

 private:
  mutable std::vector<std::unique_ptr<std::string>> bytes_;
};

json::value golden() {
  std::ifstream in(DI_SOURCE_DIR "/tests/golden/recipe/chat_streams.json");
  std::ostringstream text;
  text << in.rdbuf();
  return json::parse(text.str());
}

std::string_view text_of(const json::value& value) { return value.as_string(); }

// The output events of a scenario, as the parser would make them.
std::vector<OutputEvent> events_of(const json::value& scenario, const NamedTokens& tokens) {
  const json::object& engine = scenario.at("engine").as_object();
  std::vector<OutputEvent> out;
  bool reasoning = scenario.at("thinking").as_bool();
  int32_t num_tokens = 0, num_reasoning = 0;
  size_t logprob = 0;
  for (const json::value& piece : engine.at("tokens").as_array()) {
    const int32_t n = static_cast<int32_t>(piece.at("n").as_int64());
    num_tokens += n;
    if (reasoning) num_reasoning += n;
    if (piece.as_object().contains("s")) {
      EXPECT_EQ(text_of(piece.at("s")), "</think>");
      reasoning = false;
      continue;
    }
    OutputEvent event{.kind = reasoning ? OutputEvent::Kind::kReasoning : OutputEvent::Kind::kContent, .text = std::string(text_of(piece.at("t")))};
    if (const json::value* list = engine.if_contains("logprobs")) {
      const json::value& entry = list->at(logprob++);
      TokenEvent token{.token = tokens.add(text_of(entry.at("token"))), .logprob = entry.at("logprob").to_number<float>()};
      for (const json::value& top : entry.at("top").as_array()) {
        token.top[static_cast<size_t>(token.num_top++)] = {.token = tokens.add(text_of(top.at(0))), .logprob = top.at(1).to_number<float>()};
      }
      event.tokens.push_back(token);
    }
    out.push_back(std::move(event));
  }
  const bool stop = text_of(engine.at("finish")) == "stop";
  if (stop) num_tokens += 1;  // the end token
  if (stop && reasoning) num_reasoning += 1;
  const Usage usage{.prompt_tokens = static_cast<int32_t>(engine.at("prompt_tokens").as_int64()),
                    .cached_tokens = static_cast<int32_t>(engine.at("cached_tokens").as_int64()), .completion_tokens = num_tokens};
  out.push_back({.kind = OutputEvent::Kind::kFinished, .reason = stop ? FinishReason::kStop : FinishReason::kLength, .usage = usage,
                 .reasoning_tokens = num_reasoning});
  return out;
}

AnswerInfo info_of(const json::value& scenario, bool stream) {
  return {.id = "$ID", .model = "deepseek-v4.1", .system_fingerprint = "$FP", .created_unix_s = 0, .stream = stream,
          .include_usage = scenario.at("include_usage").as_bool(), .logprobs = scenario.at("logprobs").as_bool(),
          .starts_in_reasoning = scenario.at("thinking").as_bool()};
}

// Without nulls, and `created` left out.
json::value canonical(const json::value& value) {
  if (const json::array* list = value.if_array()) {
    json::array out;
    for (const json::value& item : *list) out.push_back(canonical(item));
    return out;
  }
  if (!value.is_object()) return value;
  json::object out;
  for (const auto& [key, item] : value.as_object()) {
    if (!item.is_null() && key != "created") out[key] = canonical(item);
  }
  return out;
}

// The one delta of a frame, if it is text of one field.
json::object* text_delta(json::value& frame, std::string_view field) {
  json::object* object = frame.if_object();
  if (object == nullptr || !object->contains("choices") || object->at("choices").as_array().empty()) return nullptr;
  json::object& choice = object->at("choices").at(0).as_object();
  if (choice.contains("finish_reason")) return nullptr;
  json::object& delta = choice.at("delta").as_object();
  return delta.size() == 1 && delta.contains(field) ? &choice : nullptr;
}

void join(json::object& into, const json::object& from, std::string_view field) {
  json::string& text = into.at("delta").as_object().at(field).as_string();
  text += from.at("delta").at(field).as_string();
  if (!from.contains("logprobs")) return;
  json::array& list = into.at("logprobs").as_object().at(field).as_array();
  for (const json::value& item : from.at("logprobs").at(field).as_array()) list.push_back(item);
}

std::vector<json::value> joined(const std::vector<json::value>& frames) {
  std::vector<json::value> out;
  for (json::value frame : frames) {
    bool merged = false;
    for (const std::string_view field : {"content", "reasoning_content"}) {
      json::object* last = out.empty() ? nullptr : text_delta(out.back(), field);
      json::object* next = text_delta(frame, field);
      if (last == nullptr || next == nullptr) continue;
      join(*last, *next, field);
      merged = true;
    }
    if (!merged) out.push_back(std::move(frame));
  }
  return out;
}

std::vector<json::value> frames_of(std::string_view stream) {
  std::vector<json::value> out;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    const std::string_view data = stream.substr(6, end - 6);
    out.push_back(data == "[DONE]" ? json::value("[DONE]") : canonical(json::parse(data)));
    stream.remove_prefix(end + 2);
  }
  return joined(out);
}

TEST(ChatAnswer, StreamsEqualTheGoldens) {
  const json::value file = golden();
  for (const json::value& scenario : file.at("scenarios").as_array()) {
    const NamedTokens tokens;
    const std::unique_ptr<Answer> answer = make_chat_answer(info_of(scenario, true), tokens);
    std::string stream;
    for (const OutputEvent& event : events_of(scenario, tokens)) answer->on_output(0, event, stream);
    ASSERT_TRUE(answer->finished());
    answer->end_stream(stream);
    std::vector<json::value> want;
    for (const json::value& frame : scenario.at("frames").as_array()) want.push_back(canonical(frame));
    want = joined(want);
    const std::vector<json::value> got = frames_of(stream);
    ASSERT_EQ(got.size(), want.size()) << scenario.at("name") << stream;
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(json::serialize(got[i]) == json::serialize(want[i]) || got[i] == want[i], true)
        << scenario.at("name") << "\n got " << got[i] << "\nwant " << want[i];
  }
}

TEST(ChatAnswer, WholeAnswersEqualTheGoldens) {
  const json::value file = golden();
  for (const json::value& scenario : file.at("scenarios").as_array()) {
    const NamedTokens tokens;
    const std::unique_ptr<Answer> answer = make_chat_answer(info_of(scenario, false), tokens);
    std::string stream;
    for (const OutputEvent& event : events_of(scenario, tokens)) answer->on_output(0, event, stream);
    EXPECT_TRUE(stream.empty());
    EXPECT_EQ(canonical(json::parse(answer->body())), canonical(scenario.at("complete"))) << scenario.at("name");
  }
}

TEST(Answer, SumsChoicesAndCountsThePromptOnce) {
  const NamedTokens tokens;
  const std::unique_ptr<Answer> answer = make_chat_answer({.n = 2}, tokens);
  std::string out;
  for (const int32_t choice : {1, 0}) {
    answer->on_output(choice, {.kind = OutputEvent::Kind::kFinished, .usage = {.prompt_tokens = 10, .cached_tokens = choice == 0 ? 4 : 9, .completion_tokens = 3},
                               .reasoning_tokens = 1}, out);
  }
  EXPECT_TRUE(answer->finished());
  EXPECT_EQ(answer->usage().prompt_tokens, 10);
  EXPECT_EQ(answer->usage().cached_tokens, 4);
  EXPECT_EQ(answer->usage().completion_tokens, 6);
  EXPECT_EQ(answer->reasoning_tokens(), 2);
}

TEST(Answer, NothingFollowsAFault) {
  const NamedTokens tokens;
  const std::unique_ptr<Answer> answer = make_chat_answer({.n = 2, .stream = true}, tokens);
  std::string out;
  answer->on_output(0, {.kind = OutputEvent::Kind::kFinished, .reason = FinishReason::kError, .error = "why"}, out);
  EXPECT_TRUE(answer->failed());
  EXPECT_FALSE(answer->cancelled());
  EXPECT_EQ(answer->error(), "why");
  answer->on_output(1, {.text = "late"}, out);
  answer->on_output(1, {.kind = OutputEvent::Kind::kFinished}, out);
  EXPECT_TRUE(out.empty());
}

TEST(Answer, LogprobsThatJsonCannotSay) {
  EXPECT_EQ(finite_logprob(-std::numeric_limits<float>::infinity()), -9999.0f);
  EXPECT_EQ(finite_logprob(-0.5f), -0.5f);
}

}  // namespace
}  // namespace deepinfer::recipe
