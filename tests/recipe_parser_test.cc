// The output parser against parser.json: the same events at every way to cut the answer into tokens.
#include <gtest/gtest.h>

#include "recipe/output.h"
#include "recipe_golden.h"

namespace deepinfer::recipe {
namespace {

namespace json = boost::json;

constexpr TokenId kThink = 1, kThinkEnd = 2, kDsml = 3, kFirstPiece = 10;

// A vocabulary of whatever pieces an answer is cut into.
class PieceTokenizer final : public tokenizer::Tokenizer {
 public:
  explicit PieceTokenizer(bool with_markers) {
    if (with_markers) added_ = {{kThink, "<think>", false}, {kThinkEnd, "</think>", false}, {kDsml, "｜DSML｜", false}};
  }
  TokenId add(std::string_view piece) {
    pieces_.emplace_back(piece);
    return kFirstPiece + static_cast<TokenId>(pieces_.size()) - 1;
  }

  void encode(std::string_view, tokenizer::Recognize, std::vector<TokenId>&) const override {}
  int32_t vocab_size() const override { return kFirstPiece + static_cast<int32_t>(pieces_.size()); }
  std::optional<TokenId> special_id(std::string_view spelling) const override {
    for (const AddedToken& token : added_) {
      if (token.spelling == spelling) return token.id;
    }
    return {};
  }
  std::span<const AddedToken> added_tokens() const override { return added_; }
  std::string_view token_bytes(TokenId id) const override {
    if (id >= kFirstPiece) return pieces_[static_cast<size_t>(id - kFirstPiece)];
    return added_[static_cast<size_t>(id - 1)].spelling;
  }
  bool is_special(TokenId) const override { return false; }
  std::optional<TokenId> bos_id() const override { return {}; }
  std::optional<TokenId> eos_id() const override { return {}; }
  bool add_bos() const override { return false; }
  std::span<const TokenId> stop_ids() const override { return {}; }

 private:
  std::vector<AddedToken> added_;
  std::vector<std::string> pieces_;
};

struct Chunk {
  std::string text;
  TokenId marker = -1;
};

std::vector<Chunk> chunks_of(const json::object& test) {
  std::vector<Chunk> out;
  for (const json::value& value : test.at("chunks").as_array()) {
    const json::object& chunk = value.as_object();
    if (const json::value* text = chunk.if_contains("t")) {
      out.push_back({.text = std::string(text->as_string())});
      continue;
    }
    const std::string_view spelling = chunk.at("s").as_string();
    out.push_back({.text = std::string(spelling), .marker = spelling == "<think>" ? kThink : spelling == "</think>" ? kThinkEnd : kDsml});
  }
  return out;
}

OutputOptions options_of(const json::object& test) {
  OutputOptions out;
  const std::string_view start = test.at("start").as_string();
  const json::value* json_mode = test.if_contains("json_mode");
  out.syntax = {.start = start == "reasoning"    ? AnswerSyntax::Start::kReasoning
                         : start == "json"       ? AnswerSyntax::Start::kJson
                         : start == "tool_calls" ? AnswerSyntax::Start::kToolCalls
                                                 : AnswerSyntax::Start::kAnswer,
                .trim_start = test.if_contains("continuation") == nullptr,
                .parse_tool_calls = test.at("parse_tool_calls").as_bool(),
                .parse_json = json_mode != nullptr && json_mode->as_bool(),
                .hides_added_tokens = true};
  if (const json::value* schemas = test.if_contains("schemas")) {
    for (const auto& [name, properties] : schemas->as_object()) {
      DeclaredTool tool{.name = std::string(name)};
      for (const auto& [key, schema] : properties.as_object()) tool.properties.emplace_back(key);
      out.syntax.tools.push_back(std::move(tool));
    }
  }
  if (const json::value* stop = test.if_contains("stop")) {
    for (const json::value& text : stop->as_array()) {
      if (!text.as_string().empty()) out.stop.emplace_back(text.as_string());
    }
  }
  out.single_tool_call = test.if_contains("no_parallel") != nullptr;
  return out;
}

FinishReason reason_of(std::string_view name) {
  if (name == "length") return FinishReason::kLength;
  if (name == "content_filter") return FinishReason::kContentFilter;
  return FinishReason::kStop;
}

// As the Messages protocol calls it.
std::string_view finish_of(const OutputEvent& end) {
  if (end.stop_string) return "stop_sequence";
  if (end.reason == FinishReason::kLength) return "max_tokens";
  if (end.reason == FinishReason::kContentFilter) return "refusal";
  return end.num_calls > 0 ? "tool_use" : "end_turn";
}

// The events with neighbours joined, then how it ended.
std::string run(const PieceTokenizer& tokenizer, const OutputOptions& options, const std::vector<TokenId>& tokens, FinishReason reason) {
  OutputParser parser(tokenizer, options);
  std::vector<OutputEvent> events;
  for (const TokenId token : tokens) {
    if (!parser.stopped()) parser.push({.has_token = true, .token = token}, events);
  }
  parser.push({.finished = reason}, events);
  json::array out;
  for (const OutputEvent& event : events) {
    const auto append = [&](std::string_view kind) {
      const bool joins = !out.empty() && out.back().as_array()[0].as_string() == kind;
      if (!joins && kind == "args") out.push_back(json::array{kind, event.call, ""});
      if (!joins && kind != "args") out.push_back(json::array{kind, ""});
      json::string& text = out.back().as_array().back().as_string();
      text.append(event.text);
    };
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning: append("reasoning"); break;
      case OutputEvent::Kind::kContent: append("content"); break;
      case OutputEvent::Kind::kArguments: append("args"); break;
      case OutputEvent::Kind::kCallStart: out.push_back(json::array{"call_start", event.call, event.text}); break;
      case OutputEvent::Kind::kCallEnd: out.push_back(json::array{"call_end", event.call}); break;
      case OutputEvent::Kind::kFinished:
        out.push_back(json::value(finish_of(event)));
        if (event.stop_string) out.push_back(json::value(*event.stop_string));
        break;
    }
    if (event.kind == OutputEvent::Kind::kContent || event.kind == OutputEvent::Kind::kReasoning) {
      EXPECT_FALSE(event.text.empty());
    }
  }
  return json::serialize(out);
}

std::string expected_of(const json::object& test) {
  json::array out = test.at("events").as_array();
  out.push_back(test.at("finish").at("messages"));
  if (const json::value* stop = test.if_contains("stop_sequence")) out.push_back(*stop);
  return json::serialize(out);
}

// Cuts the ordinary chunks where `cut` says, given the offset in the whole text.
template <class Cut>
std::vector<TokenId> tokens_of(const std::vector<Chunk>& chunks, PieceTokenizer& tokenizer, const Cut& cut) {
  std::vector<TokenId> out;
  size_t offset = 0;
  for (const Chunk& chunk : chunks) {
    if (chunk.marker >= 0) {
      out.push_back(chunk.marker);
      offset += chunk.text.size();
      continue;
    }
    size_t begin = 0;
    for (size_t i = 1; i <= chunk.text.size(); ++i) {
      if (i < chunk.text.size() && !cut(offset + i, chunk.text[i])) continue;
      out.push_back(tokenizer.add(std::string_view(chunk.text).substr(begin, i - begin)));
      begin = i;
    }
    offset += chunk.text.size();
  }
  return out;
}

void check(const json::object& test) {
  const std::vector<Chunk> chunks = chunks_of(test);
  const OutputOptions options = options_of(test);
  const FinishReason reason = reason_of(test.at("engine_finish").as_string());
  const std::string expected = expected_of(test);
  const auto expect = [&](const auto& cut) {
    PieceTokenizer tokenizer(true);
    EXPECT_EQ(run(tokenizer, options, tokens_of(chunks, tokenizer, cut), reason), expected);
  };
  expect([](size_t, char) { return false; });
  expect([](size_t, char next) { return (static_cast<unsigned char>(next) & 0xc0) != 0x80; });
  expect([](size_t, char) { return true; });
  size_t size = 0;
  for (const Chunk& chunk : chunks) size += chunk.text.size();
  if (size <= 90) {
    for (size_t a = 1; a < size; ++a) {
      for (size_t b = a; b < size; ++b) expect([&](size_t at, char) { return at == a || at == b; });
    }
  }
  if (test.if_contains("needs_provenance") != nullptr) return;
  // As text: markers are spelt.
  std::vector<Chunk> text;
  for (const Chunk& chunk : chunks) text.push_back({.text = chunk.text});
  OutputOptions by_text = options;
  by_text.markers_by_text = true;
  for (const bool whole : {true, false}) {
    PieceTokenizer tokenizer(false);
    EXPECT_EQ(run(tokenizer, by_text, tokens_of(text, tokenizer, [&](size_t, char) { return !whole; }), reason), expected) << "as text";
  }
}

TEST(RecipeParser, GivesTheEventsOfTheReference) {
  const json::value golden = testing::read_golden("parser.json");
  for (const json::value& test : golden.at("cases").as_array()) {
    SCOPED_TRACE(std::string(test.at("name").as_string()));
    check(test.as_object());
  }
}

TEST(RecipeParser, GivesTheEventsOfRandomAnswers) {
  const json::value golden = testing::read_golden("parser.json");
  for (const json::value& test : golden.at("random_cases").as_array()) {
    SCOPED_TRACE(json::serialize(test.at("chunks")));
    check(test.as_object());
  }
}

}  // namespace
}  // namespace deepinfer::recipe
