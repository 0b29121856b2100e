// What a client types is never a control token: every spelling of the vocabulary in every place of every protocol that reaches the prompt.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "recipe/dialect.h"
#include "recipe/encode_request.h"
#include "recipe/protocol.h"
#include "recipe_golden.h"

namespace deepinfer::recipe {
namespace {

namespace json = boost::json;

constexpr std::string_view kChat = R"({
  "model": "m", "reasoning_effort": "low",
  "messages": [
    {"role": "system", "content": "system text"},
    {"role": "developer", "content": [{"type": "text", "text": "developer text"}]},
    {"role": "latest_reminder", "content": "reminder text"},
    {"role": "user", "name": "user name", "content": [{"type": "text", "text": "user text"}, {"type": "text", "text": "more text"},
      {"type": "image_url", "image_url": {"url": "https://a.example/1.png", "alt": "alt text"}}]},
    {"role": "assistant", "content": "assistant text", "reasoning_content": "reasoning text",
     "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "call name", "arguments": "{\"key\": \"value\", \"list\": [\"item\", {\"inner\": 1}]}"}},
                    {"id": "c2", "type": "function", "function": {"name": "f", "arguments": "no object"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "result text"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "result block"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "assistant block"}, {"type": "refusal", "refusal": "refusal text"}]},
    {"role": "user", "content": "last text"}],
  "tools": [{"type": "function", "function": {"name": "f", "description": "tool description", "parameters":
    {"type": "object", "title": "schema title", "properties": {"property": {"type": "string", "description": "property description", "enum": ["choice"]}},
     "required": ["property"]}}}],
  "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "description": "answer description"}}}})";

constexpr std::string_view kResponses = R"({
  "model": "m", "instructions": "instruction text", "reasoning": {"effort": "low"},
  "input": [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "developer text"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "user text"}]},
    {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "reasoning text"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "assistant text"}]},
    {"type": "function_call", "call_id": "c1", "name": "call name", "arguments": "{\"key\": \"value\"}"},
    {"type": "function_call_output", "call_id": "c1", "output": "result text"},
    {"role": "user", "content": [{"type": "input_text", "text": "more text"}, {"type": "input_image", "image_url": "https://a.example/1.png"},
      {"type": "input_file", "filename": "file name", "file_data": "file data"}]},
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "summary text"}]},
    {"type": "function_call", "call_id": "c2", "namespace": "space", "name": "spaced", "arguments": "no object"},
    {"type": "custom_tool_call", "call_id": "c3", "name": "apply_patch", "input": "patch text"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "result block"}]},
    {"type": "custom_tool_call_output", "call_id": "c3", "output": "custom result"},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "refusal text"}]},
    {"role": "system", "content": "system text"},
    {"type": "additional_tools", "tools": [{"type": "function", "name": "late", "description": "late description"}]},
    {"role": "user", "content": "last text"}],
  "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object", "description": "answer description"}}},
  "tools": [{"type": "function", "name": "f", "description": "tool description", "parameters":
    {"type": "object", "properties": {"property": {"type": "string", "description": "property description"}}}},
    {"type": "custom", "name": "apply_patch", "description": "custom description"},
    {"type": "namespace", "name": "space", "description": "space description", "tools": [{"type": "function", "name": "spaced", "description": "spaced description"}]}]})";

constexpr std::string_view kMessages = R"({
  "model": "m", "max_tokens": 9,
  "system": [{"type": "text", "text": "system text"}],
  "messages": [
    {"role": "user", "content": [{"type": "text", "text": "user text"},
      {"type": "image", "source": {"type": "url", "url": "https://a.example/1.png"}},
      {"type": "document", "title": "document title", "source": {"type": "text", "media_type": "text/plain", "data": "document text"}},
      {"type": "tool_reference", "tool_name": "referenced name"}]},
    {"role": "system", "content": "later system text"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "reasoning text", "signature": "s"}, {"type": "text", "text": "assistant text"},
      {"type": "tool_use", "id": "c1", "name": "call_name", "input": {"key": "value", "deep": {"inner": ["item"]}}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "result text"}]},
      {"type": "text", "text": "last text"}]},
    {"role": "assistant", "content": "assistant string"}, {"role": "user", "content": "user string"}],
  "output_config": {"format": {"type": "json_schema", "schema": {"type": "object", "description": "answer description"}}},
  "tools": [{"name": "f", "description": "tool description", "input_schema":
    {"type": "object", "properties": {"property": {"type": "string", "description": "property description"}}}}]})";

constexpr std::string_view kCompletions = R"({"model": "m", "prompt": "prompt text"})";
constexpr std::string_view kFillIn = R"({"model": "m", "prompt": ["prompt text"], "suffix": "suffix text"})";

// A string or the name of a member somewhere in a request; set() puts another text there, from what was there before.
struct Place {
  std::string path;
  std::function<void(json::value& root, std::string_view text)> set;
};

void find_places(const json::value& value, const std::string& path, const std::function<json::value*(json::value&)>& reach, std::vector<Place>& out) {
  if (value.is_string()) {
    out.push_back({path, [reach](json::value& root, std::string_view text) { *reach(root) = json::string(text); }});
  } else if (const json::array* array = value.if_array()) {
    for (size_t i = 0; i < array->size(); ++i) {
      find_places((*array)[i], path + "[" + std::to_string(i) + "]", [reach, i](json::value& root) { return &reach(root)->as_array()[i]; }, out);
    }
  } else if (const json::object* object = value.if_object()) {
    for (const auto& [key, member] : *object) {
      const std::string name(key);
      find_places(member, path + "." + name, [reach, name](json::value& root) { return &reach(root)->as_object().at(name); }, out);
      out.push_back({path + "." + name + " (name)", [reach, name](json::value& root, std::string_view text) {
                       json::object& owner = reach(root)->as_object();
                       json::object renamed;
                       for (auto& [other, old] : owner) renamed[other == name ? text : std::string_view(other)] = old;
                       owner = std::move(renamed);
                     }});
    }
  }
}

class RecipeLookalikes : public ::testing::Test {
 protected:
  RecipeLookalikes() : tokenizer_(testing::nano_tokenizer()) {
    for (const auto& token : tokenizer_->added_tokens()) added_.insert(token.id);
  }

  std::optional<EncodedRequest> encode(Protocol protocol, Dialect dialect, const json::value& body) const {
    RequestContext context;
    context.options.vocab_size = tokenizer_->vocab_size();
    context.options.dialect = dialect;
    context.options.accepts_images = true;
    Problems problems;
    const auto request = parse_request(protocol, body.as_object(), context, problems);
    if (!request) return std::nullopt;
    const auto renderer = make_dialect_renderer(dialect, *tokenizer_, {});
    auto encoded = encode_request(*request, {.tokenizer = *tokenizer_, .renderer = renderer->get(), .text_bos = true});
    return encoded ? std::optional(std::move(*encoded)) : std::nullopt;
  }

  static size_t num_control(const Prompt& prompt) {
    size_t out = 0;
    for (const Segment& segment : prompt.segments) out += segment.kind == Segment::Kind::kPlain ? 0 : 1;
    return out;
  }

  size_t num_added(const std::vector<TokenId>& ids) const {
    size_t out = 0;
    for (const TokenId id : ids) out += added_.count(id);
    return out;
  }

  // Puts every spelling into every place whose text reaches the prompt; returns those places.
  std::set<std::string> check(Protocol protocol, Dialect dialect, std::string_view body) const {
    const json::value whole = json::parse(body);
    std::vector<Place> places;
    find_places(whole, "", [](json::value& root) { return &root; }, places);
    std::set<std::string> reached;
    for (const Place& place : places) {
      const auto with = [&](std::string_view text) {
        json::value copy = whole;
        place.set(copy, text);
        return encode(protocol, dialect, copy);
      };
      const auto plain = with("plainword");
      if (!plain || prompt_text(plain->prompt).find("plainword") == std::string::npos) continue;
      reached.insert(place.path);
      const size_t expected = num_control(plain->prompt);
      for (const auto& token : tokenizer_->added_tokens()) {
        const auto typed = with(token.spelling);
        if (!typed) continue;  // refused: a name of this form
        EXPECT_EQ(num_control(typed->prompt), expected) << place.path << " " << token.spelling;
        EXPECT_EQ(num_added(typed->ids), expected) << place.path << " " << token.spelling;
        EXPECT_NE(prompt_text(typed->prompt).find(token.spelling), std::string::npos) << place.path << " " << token.spelling;
      }
    }
    return reached;
  }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::set<TokenId> added_;
};

void expect_all(const std::set<std::string>& reached, std::initializer_list<const char*> expected) {
  for (const char* path : expected) EXPECT_TRUE(reached.count(path) == 1) << path;
}

constexpr Dialect kDialects[] = {Dialect::kV4Preview, Dialect::kV4, Dialect::kV41};

TEST_F(RecipeLookalikes, Chat) {
  for (const Dialect dialect : kDialects) {
    expect_all(check(Protocol::kChat, dialect, kChat),
               {".messages[0].content", ".messages[1].content[0].text", ".messages[2].content", ".messages[3].content[0].text", ".messages[3].content[1].text",
                ".messages[4].content", ".messages[4].reasoning_content", ".messages[4].tool_calls[0].function.name",
                ".messages[4].tool_calls[0].function.arguments", ".messages[4].tool_calls[1].function.arguments", ".messages[5].content",
                ".messages[6].content[0].text", ".messages[7].content[0].text", ".messages[7].content[1].refusal", ".messages[8].content",
                ".tools[0].function.name", ".tools[0].function.description", ".tools[0].function.parameters.title",
                ".tools[0].function.parameters.properties.property (name)", ".tools[0].function.parameters.properties.property.description",
                ".tools[0].function.parameters.properties.property.enum[0]", ".tools[0].function.parameters.required[0]",
                ".response_format.json_schema.schema.description"});
  }
}

TEST_F(RecipeLookalikes, Responses) {
  for (const Dialect dialect : kDialects) {
    std::set<std::string> reached = check(Protocol::kResponses, dialect, kResponses);
    expect_all(reached,
               {".instructions", ".input[0].content[0].text", ".input[1].content[0].text", ".input[2].content[0].text", ".input[3].content[0].text",
                ".input[4].name", ".input[4].arguments", ".input[5].output", ".input[6].content[0].text", ".input[7].summary[0].text", ".input[8].namespace",
                ".input[8].name", ".input[8].arguments", ".input[9].input", ".input[10].output[0].text", ".input[11].output",
                ".input[12].content[0].refusal", ".input[13].content", ".input[14].tools[0].name", ".input[14].tools[0].description", ".input[15].content",
                ".text.format.schema.description", ".tools[0].name", ".tools[0].description", ".tools[0].parameters.properties.property (name)",
                ".tools[0].parameters.properties.property.description", ".tools[2].name", ".tools[2].tools[0].name", ".tools[2].tools[0].description"});
    EXPECT_EQ(reached.count(".tools[2].description"), dialect == Dialect::kV41 ? 1u : 0u);
  }
}

TEST_F(RecipeLookalikes, Messages) {
  for (const Dialect dialect : kDialects) {
    expect_all(check(Protocol::kMessages, dialect, kMessages),
               {".system[0].text", ".messages[0].content[0].text", ".messages[0].content[2].source.media_type", ".messages[0].content[3].tool_name",
                ".messages[1].content", ".messages[2].content[0].thinking", ".messages[2].content[1].text", ".messages[2].content[2].name",
                ".messages[2].content[2].input.key", ".messages[2].content[2].input.key (name)", ".messages[2].content[2].input.deep.inner[0]",
                ".messages[3].content[0].content[0].text", ".messages[3].content[1].text", ".messages[4].content", ".messages[5].content",
                ".output_config.format.schema.description", ".tools[0].name", ".tools[0].description", ".tools[0].input_schema.properties.property.description"});
  }
}

TEST_F(RecipeLookalikes, Completions) {
  for (const Dialect dialect : kDialects) {
    expect_all(check(Protocol::kCompletions, dialect, kCompletions), {".prompt"});
    expect_all(check(Protocol::kCompletions, dialect, kFillIn), {".prompt[0]", ".suffix"});
  }
}

// Inside the arguments of a call, which are JSON in a string.
TEST_F(RecipeLookalikes, Arguments) {
  for (const auto& token : tokenizer_->added_tokens()) {
    json::value body = json::parse(kChat);
    const std::string arguments = json::serialize(json::object{{token.spelling, token.spelling}, {"o", json::object{{token.spelling, json::array{token.spelling}}}}});
    body.as_object()["messages"].as_array()[4].as_object()["tool_calls"].as_array()[0].as_object()["function"].as_object()["arguments"] = arguments;
    const auto encoded = encode(Protocol::kChat, Dialect::kV41, body);
    ASSERT_TRUE(encoded);
    EXPECT_EQ(num_added(encoded->ids), num_control(encoded->prompt)) << token.spelling;
  }
}

}  // namespace
}  // namespace deepinfer::recipe
