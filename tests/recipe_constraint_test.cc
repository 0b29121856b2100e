// Constraints as requests ask for them, through the grammar engine with DeepSeek's vocabulary: what is sampled under them, at random, is
// what the output parser and a client take for right.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <vector>

#include "base/rng.h"
#include "grammar/grammar.h"
#include "read_file.h"
#include "recipe/constraint.h"
#include "recipe/dialect.h"
#include "recipe/encode_request.h"
#include "recipe/output.h"

namespace deepinfer::recipe {
namespace {

namespace json = boost::json;

TokenId end_of(const tokenizer::Tokenizer& tokenizer) { return tokenizer.special_id("<｜end▁of▁sentence｜>").value(); }

// Each dialect with a vocabulary of a model that speaks it.
struct Model {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<const grammar::Vocabulary> trie;

  explicit Model(const std::string& path) : tokenizer(tokenizer::Tokenizer::from_json(read_file(path), "", path).value()) {
    const TokenId end = end_of(*tokenizer);
    trie = grammar::Vocabulary::build(*tokenizer, tokenizer->vocab_size(), {&end, 1}).value();
  }
};

const Model& model_of(Dialect dialect) {
  static const Model v4(DI_SOURCE_DIR "/models/deepseek/tokenizer.json"), v41(DI_SOURCE_DIR "/models/nano/tokenizer.json");
  return dialect == Dialect::kV41 ? v41 : v4;
}

struct Asked {
  ParsedRequest request;
  AnswerSyntax syntax;
  Result<Constraint> constraint;
};

Asked ask(std::string_view body, Dialect dialect, Protocol protocol = Protocol::kChat, SchemasOf schemas = SchemasOf::kStrictTools) {
  Problems problems;
  const tokenizer::Tokenizer& vocabulary = *model_of(dialect).tokenizer;
  const RequestContext context{.options = {.vocab_size = vocabulary.vocab_size(), .dialect = dialect}};
  std::optional<ParsedRequest> parsed = parse_request(protocol, json::parse(body).as_object(), context, problems);
  EXPECT_TRUE(parsed) << (problems.any() ? problems.first().message : "");
  const auto renderer = make_dialect_renderer(dialect, vocabulary).value();
  const EncodedRequest encoded = encode_request(*parsed, {.tokenizer = vocabulary, .renderer = renderer.get()}).value();
  Result<Constraint> constraint = make_constraint(*parsed, encoded.prompt.syntax, dialect, vocabulary, schemas);
  return {.request = std::move(*parsed), .syntax = encoded.prompt.syntax, .constraint = std::move(constraint)};
}

class Sampled {
 public:
  explicit Sampled(const std::string& spec, Dialect dialect = Dialect::kV4)
      : vocabulary_(*model_of(dialect).tokenizer), trie_(*model_of(dialect).trie), grammar_(grammar::Grammar::compile(trie_, spec).value()) {}

  // Text is cut into the tokens that the vocabulary cuts it into; ｜DSML｜ is its control token.
  bool accepts(std::string_view text) {
    grammar::Matcher matcher = grammar_->matcher().value();
    std::vector<uint32_t> bits(trie_.mask_words());
    std::vector<TokenId> tokens;
    constexpr std::string_view kMark = "｜DSML｜";
    while (!text.empty()) {
      const size_t mark = text.find(kMark);
      vocabulary_.encode(text.substr(0, mark), tokenizer::Recognize::kNothing, tokens);
      if (mark == std::string_view::npos) break;
      tokens.push_back(*vocabulary_.special_id(kMark));
      text.remove_prefix(mark + kMark.size());
    }
    for (const TokenId token : tokens) {
      if (matcher.is_complete() || !matcher.mask(bits) || (bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1) == 0) return false;
      EXPECT_TRUE(matcher.accept(token).has_value());
    }
    return matcher.is_accepting();
  }

  // Tokens of an answer, drawn evenly from each mask but for a liking of short tokens' ends: an end is taken where there may be one.
  std::vector<TokenId> sample(Rng& rng, size_t max_tokens) {
    grammar::Matcher matcher = grammar_->matcher().value();
    std::vector<uint32_t> bits(trie_.mask_words());
    std::vector<TokenId> out, allowed, closing;
    while (!matcher.is_complete() && out.size() < max_tokens) {
      if (out.size() > 30 && matcher.is_accepting()) break;
      EXPECT_TRUE(matcher.mask(bits).has_value());
      allowed.clear();
      closing.clear();
      for (TokenId t = 0; t < trie_.size(); ++t) {
        if ((bits[static_cast<size_t>(t) / 32] >> (t % 32) & 1) == 0 || t == end_of(vocabulary_)) continue;
        allowed.push_back(t);
        const std::string_view text = vocabulary_.token_bytes(t);
        if (text.find_first_of("\"}]</0123456789") != std::string_view::npos || vocabulary_.is_special(t)) closing.push_back(t);
      }
      if (allowed.empty()) break;
      const std::vector<TokenId>& from = rng.below(3) > 0 && !closing.empty() ? closing : allowed;
      const TokenId token = from[rng.below(from.size())];
      EXPECT_TRUE(matcher.accept(token).has_value());
      out.push_back(token);
    }
    accepting = matcher.is_accepting();
    return out;
  }
  bool accepting = false;

 private:
  const tokenizer::Tokenizer& vocabulary_;
  const grammar::Vocabulary& trie_;
  std::shared_ptr<const grammar::Grammar> grammar_;
};

struct Parsed {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  int32_t num_complete = 0;
};

Parsed parse(const tokenizer::Tokenizer& vocabulary, const std::vector<TokenId>& tokens, const AnswerSyntax& syntax) {
  OutputParser parser(vocabulary, {.syntax = syntax});
  std::vector<OutputEvent> events;
  for (const TokenId token : tokens) {
    TokenEvent event;
    event.has_token = true;
    event.token = token;
    parser.push(event, events);
  }
  TokenEvent end;
  end.finished = FinishReason::kStop;
  parser.push(end, events);
  Parsed out;
  for (const OutputEvent& event : events) {
    if (event.kind == OutputEvent::Kind::kContent) out.content += event.text;
    if (event.kind == OutputEvent::Kind::kCallStart) out.calls.emplace_back(event.text, "");
    if (event.kind == OutputEvent::Kind::kArguments) out.calls.back().second += event.text;
    if (event.kind == OutputEvent::Kind::kFinished) out.num_complete = event.num_calls;
  }
  return out;
}

constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"get_weather","strict":true,"parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":9},"unit":{"type":"string","enum":["C","F"]},"when":{"$ref":"#/$defs/date"}},"required":["city","days"],"additionalProperties":false,"$defs":{"date":{"type":"string","format":"date"}}}}},{"type":"function","function":{"name":"ping","strict":true,"parameters":{"type":"object","properties":{},"additionalProperties":false}}},{"type":"function","function":{"name":"free","parameters":{"type":"object","properties":{"x":{"not":{}}}}}}])";

std::string chat(std::string_view more) {
  return R"({"messages":[{"role":"user","content":"json please"}],"thinking":{"type":"disabled"},)" + std::string(more) + "}";
}

TEST(RecipeConstraint, RandomAnswersUnderAForcedChoiceAreCallsBySchema) {
  for (const Dialect dialect : {Dialect::kV4, Dialect::kV41}) {
    const Asked asked = ask(chat(std::string(kTools) + R"(,"tool_choice":"required")"), dialect);
    ASSERT_TRUE(asked.constraint.has_value());
    EXPECT_EQ(asked.constraint->begins_after, -1);
    const tokenizer::Tokenizer& vocabulary = *model_of(dialect).tokenizer;
    Sampled sampled(asked.constraint->spec, dialect);
    Rng rng(3);
    int num_complete = 0;
    for (int round = 0; round < 5; ++round) {
      const std::vector<TokenId> tokens = sampled.sample(rng, 250);
      if (!sampled.accepting) continue;
      num_complete += 1;
      const Parsed parsed = parse(vocabulary, tokens, asked.syntax);
      EXPECT_EQ(parsed.content, "");
      ASSERT_FALSE(parsed.calls.empty()) << vocabulary.decode(tokens, true);
      EXPECT_EQ(parsed.num_complete, static_cast<int32_t>(parsed.calls.size()));
      for (const auto& [name, arguments] : parsed.calls) {
        const json::object object = json::parse(arguments).as_object();
        if (name == "ping") {
          EXPECT_TRUE(object.empty());
        }
        if (name != "get_weather") continue;
        EXPECT_TRUE(object.at("city").is_string()) << arguments;
        EXPECT_GE(object.at("days").as_int64(), 1);
        EXPECT_LE(object.at("days").as_int64(), 9);
        if (const json::value* unit = object.if_contains("unit")) {
          EXPECT_TRUE(*unit == "C" || *unit == "F");
        }
        if (const json::value* when = object.if_contains("when")) {
          EXPECT_EQ(when->as_string().size(), 10u);
        }
      }
    }
    EXPECT_GT(num_complete, 1);
  }
}

TEST(RecipeConstraint, CallsAsTheModelWritesThemAreAllowed) {
  const Asked asked = ask(chat(kTools), Dialect::kV4);
  Sampled sampled(asked.constraint.value().spec);
  const auto block = [](std::string_view inner) { return "\n\n<｜DSML｜tool_calls>\n" + std::string(inner) + "\n</｜DSML｜tool_calls>"; };
  const std::string weather =
      "<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">a < b </x\n\n\"é\"</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n<｜DSML｜parameter name=\"unit\" string=\"true\">C</｜DSML｜parameter>\n</｜DSML｜invoke>";
  const std::string ping = "<｜DSML｜invoke name=\"ping\">\n</｜DSML｜invoke>", ping_v41 = "<｜DSML｜invoke name=\"ping\">\n\n</｜DSML｜invoke>";
  const std::string any = "<｜DSML｜invoke name=\"free\">\n<｜DSML｜parameter name=\"x\" string=\"false\">[1, {\"a\": null}]</｜DSML｜parameter>\n"
                          "<｜DSML｜parameter name=\"whatever\" string=\"true\">t</｜DSML｜parameter>\n</｜DSML｜invoke>";
  EXPECT_TRUE(sampled.accepts("Just an answer,\n\nwith < and </ and \"{\"."));
  EXPECT_TRUE(sampled.accepts(""));
  EXPECT_TRUE(sampled.accepts(block(weather)));
  EXPECT_TRUE(sampled.accepts("Let me see." + block(weather + "\n" + ping)));
  EXPECT_TRUE(sampled.accepts(block(ping + "\n" + ping_v41 + "\n" + any + "\n" + weather)));
  EXPECT_FALSE(sampled.accepts(block(weather) + "and more"));
  EXPECT_FALSE(sampled.accepts(block("")));
  EXPECT_FALSE(sampled.accepts(block("<｜DSML｜invoke name=\"other\">\n</｜DSML｜invoke>")));
  EXPECT_FALSE(sampled.accepts("Let me see.\n<｜DSML｜tool_calls>"));
  EXPECT_FALSE(sampled.accepts("half a ｜DSML｜ mark"));
  std::string ten = weather;
  ten.replace(ten.find(">3<"), 3, ">10<");
  EXPECT_FALSE(sampled.accepts(block(ten)));
  std::string kelvin = weather;
  kelvin.replace(kelvin.find(">C<"), 3, ">K<");
  EXPECT_FALSE(sampled.accepts(block(kelvin)));

  const Asked one = ask(chat(std::string(kTools) + R"(,"parallel_tool_calls":false)"), Dialect::kV4);
  Sampled single(one.constraint.value().spec);
  EXPECT_TRUE(single.accepts(block(ping)));
  EXPECT_FALSE(single.accepts(block(ping + "\n" + ping)));
}

TEST(RecipeConstraint, AForcedCallFollowsItsToolsSchemaStrictOrNot) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"}},"required":["n"]}}},
         {"type":"function","function":{"name":"none","parameters":{"type":"object","properties":{}}}},
         {"type":"function","function":{"name":"open","parameters":{"type":"object"}}},
         {"type":"function","function":{"name":"more","parameters":{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":true}}}])";
  const auto call = [](std::string_view name, std::string_view parameters) {
    return "<｜DSML｜invoke name=\"" + std::string(name) + "\">\n" + std::string(parameters) + "\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
  };
  const std::string three = "<｜DSML｜parameter name=\"n\" string=\"false\">3</｜DSML｜parameter>", other = "<｜DSML｜parameter name=\"x\" string=\"true\">3</｜DSML｜parameter>";
  const std::string text = "<｜DSML｜parameter name=\"n\" string=\"false\">\"3\"</｜DSML｜parameter>";
  Sampled forced(ask(chat(tools + R"(,"tool_choice":"required")"), Dialect::kV4, Protocol::kChat, SchemasOf::kForcedTools).constraint.value().spec);
  EXPECT_TRUE(forced.accepts(call("f", three)));
  EXPECT_FALSE(forced.accepts(call("f", other)));
  EXPECT_FALSE(forced.accepts(call("f", text)));
  EXPECT_FALSE(forced.accepts(call("none", other)));
  for (const char* open : {"open", "more"}) {
    EXPECT_TRUE(forced.accepts(call(open, three + "\n" + other))) << open << ": its schema names not all that may come";
    EXPECT_TRUE(forced.accepts(call(open, text))) << open;
  }
  Sampled loose(ask(chat(tools + R"(,"tool_choice":"required")"), Dialect::kV4).constraint.value().spec);
  EXPECT_TRUE(loose.accepts(call("f", other)));
  EXPECT_EQ(ask(chat(tools), Dialect::kV4, Protocol::kChat, SchemasOf::kForcedTools).constraint.value().spec, "") << "nothing is forced";
}

// `any` of Messages has the prompt of `auto`, so the answer opens its call itself, behind the reasoning if there is some.
TEST(RecipeConstraint, AnyCallIsACallOfTheModelsOwn) {
  for (const bool thinking : {true, false}) {
    const std::string body = R"({"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","input_schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}],
      "tool_choice":{"type":"any","disable_parallel_tool_use":true},"thinking":{"type":")" + std::string(thinking ? "adaptive" : "disabled") + R"("}})";
    const Asked asked = ask(body, Dialect::kV4, Protocol::kMessages, SchemasOf::kForcedTools);
    const TokenId end = *model_of(Dialect::kV4).tokenizer->special_id("</think>");
    EXPECT_EQ(asked.constraint.value().begins_after, thinking ? end : -1);
    Sampled sampled(asked.constraint->spec);
    const std::string call = "<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"n\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n";
    EXPECT_TRUE(sampled.accepts("\n\n<｜DSML｜tool_calls>\n" + call + "</｜DSML｜tool_calls>"));
    EXPECT_FALSE(sampled.accepts("\n\n<｜DSML｜tool_calls>\n" + call + call + "</｜DSML｜tool_calls>"));
    EXPECT_FALSE(sampled.accepts("text"));
    EXPECT_FALSE(sampled.accepts(""));
  }
}

TEST(RecipeConstraint, AResponseFormatBesideToolsIsOneOrTheOther) {
  const Asked asked = ask(chat(std::string(kTools) + R"(,"response_format":{"type":"json_object"})"), Dialect::kV4);
  Sampled sampled(asked.constraint.value().spec);
  EXPECT_TRUE(sampled.accepts(R"({"a": 1})"));
  EXPECT_TRUE(sampled.accepts("\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"ping\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"));
  EXPECT_FALSE(sampled.accepts("text"));
}

TEST(RecipeConstraint, StructuralTagsBindWhatATriggerBegins) {
  const Asked asked = ask(chat(R"("response_format":{"type":"structural_tag","triggers":["<f=","<g"],"structures":[
      {"begin":"<f=a>","schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false},"end":"</f>"},
      {"begin":"<f=b>","schema":{"type":"boolean"},"end":"</f>"},{"begin":"<g>","schema":{"enum":[1]},"end":"."}]})"),
                           Dialect::kV4);
  Sampled sampled(asked.constraint.value().spec);
  EXPECT_TRUE(sampled.accepts("nothing of the kind, <f or <"));
  EXPECT_TRUE(sampled.accepts("see <f=a>{\"n\": 12}</f> and <f=b>true</f>, <g>1."));
  EXPECT_TRUE(sampled.accepts(""));
  EXPECT_FALSE(sampled.accepts("see <f="));
  EXPECT_FALSE(sampled.accepts("see <f=c>"));
  EXPECT_FALSE(sampled.accepts("see <f=a>{\"n\": true}</f>"));
  EXPECT_FALSE(sampled.accepts("see <g>2."));
}

TEST(RecipeConstraint, ThinkingIsLeftFree) {
  const TokenId end = *model_of(Dialect::kV4).tokenizer->special_id("</think>");
  const std::string body = R"({"messages":[{"role":"user","content":"json"}],"response_format":{"type":"json_object"}})";
  const Asked chat_answer = ask(body, Dialect::kV4);
  EXPECT_EQ(chat_answer.constraint.value().begins_after, end);
  EXPECT_EQ(chat_answer.constraint.value().spec, R"({"kind":"json_schema","schema":{"type":"object"},"compact":false})");
  const Asked messages = ask(R"({"messages":[{"role":"user","content":"x"}],"output_config":{"format":{"type":"json_schema","schema":{"type":"boolean"}}}})",
                             Dialect::kV4, Protocol::kMessages);
  EXPECT_EQ(messages.constraint.value().begins_after, end);
  const Asked responses = ask(R"({"input":"json","reasoning":{"effort":"none"},"text":{"format":{"type":"json_schema","name":"b","schema":{"type":"boolean"}}}})",
                              Dialect::kV4, Protocol::kResponses);
  EXPECT_EQ(responses.constraint.value().begins_after, -1);
  EXPECT_EQ(constraint_field(responses.request, Protocol::kResponses), "text.format");
}

TEST(RecipeConstraint, NothingIsConstrainedThatWasNotAskedFor) {
  EXPECT_EQ(ask(chat(R"("n":1)"), Dialect::kV4).constraint.value().spec, "");
  EXPECT_EQ(ask(chat(R"("tools":[{"type":"function","function":{"name":"f","parameters":{"not":{}}}}])"), Dialect::kV4).constraint.value().spec, "");
  EXPECT_EQ(ask(chat(std::string(kTools) + R"(,"tool_choice":"none")"), Dialect::kV4).constraint.value().spec, "");
}

TEST(RecipeConstraint, ExtensionsAndTheirConflicts) {
  EXPECT_EQ(ask(chat(R"("structured_outputs":{"choice":["a","b"]})"), Dialect::kV4).constraint.value().spec, R"({"kind":"choice","choices":["a","b"]})");
  EXPECT_EQ(ask(chat(R"("structured_outputs":{"json":"{\"type\":\"null\"}","disable_any_whitespace":true})"), Dialect::kV4).constraint.value().spec,
            R"({"kind":"json_schema","schema":{"type":"null"},"compact":true})");
  EXPECT_EQ(ask(chat(R"("regex":"a+")"), Dialect::kV4).constraint.value().spec, R"({"kind":"regex","pattern":"a+"})");
  const Asked lark = ask(chat(R"("structured_outputs":{"grammar":"start: \"a\""})"), Dialect::kV4);
  EXPECT_TRUE(Sampled(lark.constraint.value().spec).accepts("a"));
  EXPECT_EQ(constraint_field(lark.request, Protocol::kChat), "structured_outputs.grammar");
  EXPECT_FALSE(ask(chat(R"("regex":"a","response_format":{"type":"json_object"})"), Dialect::kV4).constraint.has_value());
  EXPECT_FALSE(ask(chat(std::string(kTools) + R"(,"regex":"a")"), Dialect::kV4).constraint.has_value());
}

TEST(RecipeConstraint, AStrictToolThatCannotBeHonouredIsNamed) {
  const Asked asked = ask(chat(R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"a":{"type":"string","not":{}}}}}}])"),
                          Dialect::kV4);
  const auto compiled = grammar::Grammar::compile(*model_of(Dialect::kV4).trie, asked.constraint.value().spec);
  ASSERT_FALSE(compiled.has_value());
  EXPECT_EQ(compiled.error().message, R"(the schema of the tool f: keyword "not" at "/properties/a": it is not supported)");
}

// What is written around schemas grows with them: the bound of grammars that clients write is not for it.
TEST(RecipeConstraint, ManyToolsWithManyParametersAreHonoured) {
  std::string tools;
  for (int t = 0; t < 100; ++t) {
    std::string properties;
    for (int p = 0; p < 12; ++p) properties += fmt::format(R"({}"property_{}":{{"type":"{}"}})", p > 0 ? "," : "", p, p % 2 == 0 ? "integer" : "string");
    tools += fmt::format(R"({}{{"type":"function","function":{{"name":"tool_{}","strict":true,"parameters":{{"type":"object","properties":{{{}}},"additionalProperties":false}}}}}})",
                         t > 0 ? "," : "", t, properties);
  }
  const Asked asked = ask(chat("\"tools\":[" + tools + "]"), Dialect::kV4);
  Sampled sampled(asked.constraint.value().spec);
  const auto call = [](std::string_view value) {
    return "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"tool_99\">\n<｜DSML｜parameter name=\"property_8\" string=\"false\">" + std::string(value) +
           "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
  };
  EXPECT_TRUE(sampled.accepts(call("8")));
  EXPECT_FALSE(sampled.accepts(call("null")));
}

// Each parameter's schema is compiled for itself, but its references count from the root of all.
TEST(RecipeConstraint, ReferencesOfAParameterCountFromTheRootOfAll) {
  const auto accepts = [](std::string_view parameters, std::string_view name, std::string_view value) {
    const Asked asked = ask(chat(R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":)" + std::string(parameters) + "}}]"), Dialect::kV4);
    const auto compiled = grammar::Grammar::compile(*model_of(Dialect::kV4).trie, asked.constraint.value().spec);
    EXPECT_TRUE(compiled.has_value()) << (compiled ? "" : compiled.error().message);
    return compiled && Sampled(asked.constraint->spec).accepts("\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"" + std::string(name) + "\" string=\"false\">" +
                                                               std::string(value) + "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>");
  };
  constexpr std::string_view kTree = R"({"type":"object","additionalProperties":false,"properties":{"v":{"type":"integer"},"kid":{"$ref":"#"},"kids":{"type":"array","items":{"$ref":"#"}}}})";
  EXPECT_TRUE(accepts(kTree, "kid", R"({"v": 1, "kid": {"v": 2}})"));
  EXPECT_FALSE(accepts(kTree, "kid", R"({"v": "x"})"));
  EXPECT_TRUE(accepts(kTree, "kids", R"([{"v": 1, "kids": []}])"));
  EXPECT_FALSE(accepts(kTree, "kids", "[[]]")) << "the root is the parameters, not the array";
  constexpr std::string_view kShadow = R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"object","properties":{"a":{"type":"null"},"c":{"$ref":"#/properties/a"}},"additionalProperties":false}}})";
  EXPECT_TRUE(accepts(kShadow, "b", R"({"a": null, "c": 7})"));
  EXPECT_FALSE(accepts(kShadow, "b", R"({"a": null, "c": null})")) << "the parameter a is meant";
  constexpr std::string_view kLocal = R"({"type":"object","$defs":{"q":{"type":"null"},"tool_parameters":{"type":"boolean"}},"properties":{"a":{"$ref":"#/properties/b/$defs/q"},
    "b":{"$defs":{"q":{"type":"integer"}},"anyOf":[{"$ref":"#/$defs/q"},{"$ref":"#/$defs/tool_parameters"}]},"$ref":{"const":{"$ref":"#"}}}})";
  EXPECT_TRUE(accepts(kLocal, "a", "7"));
  EXPECT_FALSE(accepts(kLocal, "a", "null"));
  EXPECT_TRUE(accepts(kLocal, "b", "null"));
  EXPECT_TRUE(accepts(kLocal, "b", "true"));
  EXPECT_FALSE(accepts(kLocal, "b", "7"));
  EXPECT_TRUE(accepts(kLocal, "$ref", R"({"$ref": "#"})")) << "a name and a value, no references";
}

// A call is written parameter by parameter. What a schema says of all of them together is refused of a strict tool, and of another one that is
// forced nothing is promised.
TEST(RecipeConstraint, WhatASchemaSaysOfAllParametersTogetherIsNotPassedOver) {
  constexpr std::string_view kPair = R"("properties":{"a":{"type":"integer"},"b":{"type":"integer"}})";
  const auto tools = [&](std::string_view properties, std::string_view more, std::string_view strict) {
    return R"("tools":[{"type":"function","function":{"name":"f","strict":)" + std::string(strict) + R"(,"parameters":{"type":"object",)" + std::string(properties) +
           std::string(more) + "}}}]";
  };
  const auto refused = [&](std::string_view more, std::string_view keyword, std::string_view properties) {
    const Asked strict = ask(chat(tools(properties, more, "true")), Dialect::kV4);
    ASSERT_FALSE(strict.constraint.has_value()) << more;
    EXPECT_TRUE(strict.constraint.error().message.starts_with("the schema of the tool f: keyword \"" + std::string(keyword) + "\" at its root: ")) << strict.constraint.error().message;
    Sampled forced(ask(chat(tools(properties, more, "false") + R"(,"tool_choice":"required")"), Dialect::kV4, Protocol::kChat, SchemasOf::kForcedTools).constraint.value().spec);
    EXPECT_TRUE(forced.accepts("<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"any\" string=\"true\">x</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>")) << more;
  };
  refused(R"(,"anyOf":[{"required":["a"]},{"required":["b"]}])", "anyOf", kPair);
  refused(R"(,"oneOf":[{"required":["a"]}])", "oneOf", kPair);
  refused(R"(,"allOf":[{"required":["a"]}])", "allOf", kPair);
  refused(R"(,"enum":[{"a":1}])", "enum", kPair);
  refused(R"(,"const":{"a":1})", "const", kPair);
  refused(R"(,"patternProperties":{"^a":{"minimum":1}})", "patternProperties", kPair);
  refused(R"(,"required":["c"])", "required", kPair);
  refused(R"(,"minProperties":1)", "minProperties", kPair);
  refused(R"(,"required":["a","a"],"minProperties":2)", "minProperties", kPair);
  refused(R"(,"maxProperties":1)", "maxProperties", kPair);
  refused(R"("$ref":"#/$defs/x","$defs":{"x":{"type":"object","required":["a"]}})", "$ref", "");
  refused("", "properties", R"("properties":{"a\"b":{"type":"integer"}})");
  for (const std::string_view kept : {R"(,"required":["a"],"minProperties":1)", R"(,"additionalProperties":{"type":"string"})", R"(,"$defs":{"x":{"anyOf":[{"type":"string"}]}})"}) {
    Sampled sampled(ask(chat(tools(kPair, kept, "true")), Dialect::kV4).constraint.value().spec);
    EXPECT_TRUE(sampled.accepts("\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"false\">1</｜DSML｜parameter>\n"
                                "</｜DSML｜invoke>\n</｜DSML｜tool_calls>")) << kept;
  }
}

}  // namespace
}  // namespace deepinfer::recipe
