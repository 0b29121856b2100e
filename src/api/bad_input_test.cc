// Every documented field of every protocol with values that it does not take: the right status in the right shape, nothing computed,
// nobody harmed. What a field takes is a table here, beside recipe.md's tables in the parsers.
#include <fmt/format.h>

#include <algorithm>

#include "http/world.h"
#include "sanitized.h"

namespace deepinfer::api {
namespace {

using namespace testing_support;

// JSON types, as bits.
enum Type : unsigned { kBool = 1, kNumber = 2, kString = 4, kArray = 8, kObject = 16, kAny = 31 };

struct Field {
  const char* name;
  unsigned takes;  // values of other types are refused; of kAny fields nothing is looked at
};

struct ProtocolTable {
  const char* path;
  bool anthropic;
  std::vector<std::pair<const char*, const char*>> base;  // the members of a good request
  std::vector<Field> fields;
  std::vector<std::pair<const char*, const char*>> out_of_range;
};

const std::vector<ProtocolTable>& tables() {
  static const std::vector<ProtocolTable> all = {
      {"/v1/chat/completions",
       false,
       {{"model", "\"fake\""}, {"messages", R"([{"role":"user","content":"hi"}])"}, {"thinking", R"({"type":"disabled"})"}},
       {{"model", kString}, {"messages", kArray}, {"max_completion_tokens", kNumber}, {"max_tokens", kNumber}, {"temperature", kNumber},
        {"top_p", kNumber}, {"top_k", kNumber}, {"min_p", kNumber}, {"repetition_penalty", kNumber}, {"frequency_penalty", kNumber},
        {"presence_penalty", kNumber}, {"n", kNumber}, {"seed", kNumber}, {"stop", kString | kArray}, {"stream", kBool},
        {"stream_options", kObject}, {"logprobs", kBool}, {"top_logprobs", kNumber}, {"cache_salt", kString}, {"logit_bias", kObject}, {"response_format", 0}, {"tools", kArray}, {"tool_choice", kString | kObject},
        {"parallel_tool_calls", kBool}, {"reasoning_effort", kString}, {"thinking", kObject}, {"chat_template_kwargs", kObject},
        {"modalities", kArray}, {"audio", 0}, {"functions", 0}, {"function_call", 0}, {"stop_token_ids", kArray}, {"min_tokens", kNumber},
        {"ignore_eos", kBool}, {"structured_outputs", kObject}, {"json_schema", kObject}, {"regex", kString}, {"grammar", 0}, {"ebnf", 0}, {"guided_json", 0},
        {"guided_regex", 0}, {"guided_choice", 0}, {"guided_grammar", 0}, {"user", kAny}, {"user_id", kAny}, {"metadata", kAny}, {"store", kAny}, {"service_tier", kAny},
        {"prompt_cache_key", kAny}, {"prompt_cache_retention", kAny}, {"safety_identifier", kAny}, {"prediction", kAny}, {"verbosity", kAny},
        {"moderation", kAny}, {"web_search_options", kAny}, {"never_heard_of", kAny}},
       {{"messages", "[]"}, {"messages", "[5]"}, {"messages", "[{}]"}, {"max_tokens", "0"}, {"max_tokens", "-1"}, {"max_tokens", "1.5"}, {"max_tokens", "1e300"},
        {"max_tokens", "9223372036854775808"}, {"temperature", "2.01"}, {"temperature", "-0.1"}, {"top_p", "0"}, {"top_p", "1.1"}, {"top_k", "-2"},
        {"min_p", "1.5"}, {"repetition_penalty", "0"}, {"frequency_penalty", "2.5"}, {"presence_penalty", "-2.5"}, {"n", "0"}, {"n", "2"},
        {"seed", "-1"}, {"seed", "18446744073709551615"}, {"stop", "[1]"}, {"stop", R"(["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])"},
        {"top_logprobs", "3"}, {"logit_bias", R"({"x":1})"}, {"logit_bias", R"({"260":1})"}, {"logit_bias", R"({"1":101})"},
        {"response_format", R"({"type":"yaml"})"}, {"response_format", R"({"type":"json_schema"})"}, {"tools", "[1]"}, {"tool_choice", "\"sometimes\""},
        {"reasoning_effort", "\"extreme\""}, {"thinking", R"({"type":"perhaps"})"}, {"thinking", R"({"type":"enabled","budget_tokens":-1})"},
        {"stream_options", "{}"}, {"modalities", R"(["audio"])"}}},
      {"/v1/responses",
       false,
       {{"model", "\"fake\""}, {"input", "\"hi\""}, {"reasoning", R"({"effort":"none"})"}},
       {{"model", kString}, {"input", kString | kArray}, {"instructions", kString}, {"max_output_tokens", kNumber}, {"reasoning", kObject}, {"text", kObject},
        {"tools", kArray}, {"tool_choice", kString | kObject}, {"parallel_tool_calls", kBool}, {"temperature", kNumber}, {"top_p", kNumber},
        {"top_logprobs", kNumber}, {"stream", kBool}, {"stream_options", kObject}, {"store", kBool}, {"previous_response_id", kString},
        {"conversation", 0}, {"prompt", 0}, {"background", kBool}, {"include", kArray}, {"truncation", kString}, {"metadata", kObject}, {"user", kString},
        {"top_k", kNumber}, {"min_p", kNumber}, {"repetition_penalty", kNumber}, {"frequency_penalty", kNumber},
        {"presence_penalty", kNumber}, {"min_tokens", kNumber}, {"ignore_eos", kBool}, {"ebnf", 0}, {"guided_json", 0}, {"guided_regex", 0}, {"guided_choice", 0}, {"guided_grammar", 0}, {"structured_outputs", kObject}, {"json_schema", kObject}, {"regex", kString}, {"grammar", 0}, {"stop", kString | kArray}, {"cache_salt", kString}, {"prompt_cache_key", kString}, {"safety_identifier", kString}, {"service_tier", kString}, {"prompt_cache_retention", kAny}, {"max_tool_calls", kAny},
        {"context_management", kAny}, {"moderation", kAny}, {"client_metadata", kAny}, {"never_heard_of", kAny}},
       {{"input", "[]"}, {"input", "[1]"}, {"input", "[{}]"}, {"input", R"([{"type":"item_reference","id":"x"}])"}, {"input", R"([{"role":"robot","content":"x"}])"},
        {"input", R"([{"role":"user"}])"}, {"input", R"([{"role":"user","content":[{"type":"video"}]}])"}, {"input", R"([{"type":5}])"},
        {"max_output_tokens", "0"}, {"temperature", "3"}, {"top_p", "0"}, {"top_logprobs", "21"}, {"reasoning", R"({"effort":"extreme"})"},
        {"text", R"({"format":{"type":"yaml"}})"}, {"text", R"({"format":{"type":"json_schema","name":"s"}})"}, {"text", R"({"verbosity":"loud"})"},
        {"background", "true"}, {"include", "[1]"}, {"previous_response_id", "\"resp_0\""}, {"tools", R"([{"type":"custom","name":"other"}])"},
        {"tools", R"([{}])"}, {"tool_choice", R"({"type":"web_search"})"}, {"tool_choice", R"({"type":"function","name":"f"})"}}},
      {"/v1/messages",
       true,
       {{"model", "\"fake\""}, {"max_tokens", "50"}, {"messages", R"([{"role":"user","content":"hi"}])"}, {"thinking", R"({"type":"disabled"})"}},
       {{"model", kString}, {"max_tokens", kNumber}, {"system", kString | kArray}, {"messages", kArray}, {"stop_sequences", kArray}, {"temperature", kNumber},
        {"top_p", kNumber}, {"top_k", kNumber}, {"stream", kBool}, {"thinking", kObject}, {"output_config", kObject}, {"tools", kArray},
        {"tool_choice", kObject}, {"min_p", kNumber}, {"repetition_penalty", kNumber}, {"frequency_penalty", kNumber},
        {"presence_penalty", kNumber}, {"min_tokens", kNumber}, {"ignore_eos", kBool}, {"grammar", 0}, {"ebnf", 0}, {"guided_json", 0}, {"guided_regex", 0}, {"guided_choice", 0}, {"guided_grammar", 0}, {"structured_outputs", kObject}, {"json_schema", kObject}, {"regex", kString}, {"cache_salt", kString}, {"thread", 0}, {"metadata", kAny}, {"service_tier", kAny}, {"container", kAny}, {"mcp_servers", kAny}, {"cache_control", kAny},
        {"inference_geo", kAny}, {"context_management", kAny}, {"user_profile_id", kAny}, {"never_heard_of", kAny}},
       {{"messages", "[]"}, {"messages", "[1]"}, {"messages", R"([{"role":"robot","content":"x"}])"}, {"messages", R"([{"role":"user"}])"},
        {"messages", R"([{"role":"user","content":[1]}])"}, {"messages", R"([{"role":"user","content":[{"type":"redacted_thinking","data":"x"}]}])"},
        {"messages", R"([{"role":"user","content":[{"type":"text"}]}])"}, {"messages", R"([{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f"}]}])"},
        {"messages", R"([{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}])"},
        {"max_tokens", "0"}, {"max_tokens", "2.5"}, {"system", "[{}]"}, {"system", R"([{"type":"image"}])"}, {"stop_sequences", R"([""])"}, {"stop_sequences", "[1]"},
        {"temperature", "2.5"}, {"top_p", "0"}, {"top_k", "-5"}, {"thinking", R"({"type":"sometimes"})"}, {"output_config", R"({"effort":"extreme"})"},
        {"output_config", R"({"format":{"type":"json_object"}})"}, {"tools", R"([{"name":"f"}])"}, {"tools", R"([{"name":"f","input_schema":{"type":"array"}}])"},
        {"tools", R"([{"type":"web_search_20250305","name":"web_search"}])"}, {"tool_choice", R"({"type":"sometimes"})"}, {"tool_choice", R"({"type":"tool","name":"f"})"}}},
      {"/v1/completions",
       false,
       {{"model", "\"fake\""}, {"prompt", "\"hi\""}, {"max_tokens", "5"}},
       {{"model", kString}, {"prompt", kString | kArray}, {"suffix", kString}, {"echo", kBool}, {"best_of", kNumber}, {"n", kNumber}, {"logprobs", kNumber},
        {"max_tokens", kNumber}, {"temperature", kNumber}, {"top_p", kNumber}, {"stop", kString | kArray}, {"stream", kBool}, {"stream_options", kObject}, {"seed", kNumber},
        {"parse_special", kBool}, {"cache_salt", kString}, {"top_k", kNumber}, {"min_p", kNumber}, {"repetition_penalty", kNumber}, {"frequency_penalty", kNumber},
        {"presence_penalty", kNumber}, {"min_tokens", kNumber}, {"ignore_eos", kBool}, {"ebnf", 0}, {"guided_json", 0}, {"guided_regex", 0}, {"guided_choice", 0}, {"guided_grammar", 0}, {"json_schema", kObject}, {"regex", kString}, {"stop_token_ids", kArray}, {"max_completion_tokens", kNumber},
        {"structured_outputs", kObject}, {"logit_bias", kObject}, {"grammar", 0}, {"user", kAny}, {"never_heard_of", kAny}},
       {{"prompt", "[]"}, {"prompt", "[260]"}, {"prompt", R"(["a","b"])"}, {"prompt", "[[1],[2]]"}, {"suffix", "\"x\""}, {"echo", "true"}, {"best_of", "3"},
        {"logprobs", "21"}, {"n", "9"}}},
  };
  return all;
}

struct Value {
  Type type;
  std::string json;
};

std::vector<Value> values() {
  return {{kBool, "true"}, {kNumber, "7"}, {kString, "\"x\""}, {kArray, "[]"}, {kObject, "{}"}, {kArray, std::string(64, '[') + std::string(64, ']')}};
}

// The base request with one member set to something else, or added. twice: as it is and once more.
std::string body_with(const ProtocolTable& table, std::string_view name, std::string_view value, bool twice = false) {
  std::string out = "{";
  bool there = false;
  for (const auto& [key, text] : table.base) {
    const bool same = name == key;
    there = there || same;
    out += fmt::format("{}\"{}\":{}", out.size() > 1 ? "," : "", key, same && !twice ? value : std::string_view(text));
    if (same && twice) out += fmt::format(",\"{}\":{}", key, value);
  }
  if (!there) out += fmt::format(",\"{}\":{}", name, value);
  if (!there && twice) out += fmt::format(",\"{}\":{}", name, value);
  return out + "}";
}

class BadInput : public testing::Test {
 protected:
  BadInput() : world_({.script = [](const Request&, int32_t) { return tokens_of("ok"); }}, {.dialect = recipe::Dialect::kV41}) {}

  // Sends a request; a refusal must be in the protocol's shape, and must have cost nothing.
  int status_of(const ProtocolTable& table, const std::string& body, std::string_view param = "") {
    const size_t before = world_.inference.requests().size();
    RawClient client(world_.port());
    const std::optional<Answer> answer = client.request(post(table.path, body));
    EXPECT_TRUE(answer) << "the server hung up on " << body.substr(0, 200);
    if (!answer) return 0;
    const bool refused = answer->status != 200;
    EXPECT_EQ(world_.inference.requests().size(), before + (refused ? 0 : 1)) << body.substr(0, 200);
    if (refused) expect_shape(table, *answer, param, body);
    return answer->status;
  }
  static void expect_shape(const ProtocolTable& table, const Answer& answer, std::string_view param, const std::string& body) {
    boost::system::error_code error;
    const json::value json = json::parse(answer.body, error);
    ASSERT_FALSE(error) << answer.body;
    EXPECT_LT(answer.body.size(), 2000u) << "a client's text comes back whole";
    const json::object& inner = json.at("error").as_object();
    EXPECT_FALSE(inner.at("message").as_string().empty());
    EXPECT_EQ(inner.at("type"), table.anthropic && answer.status == 404 ? "not_found_error" : "invalid_request_error") << answer.body;
    if (table.anthropic) {
      EXPECT_EQ(json.at("type"), "error");
      EXPECT_TRUE(std::string_view(json.at("request_id").as_string()).starts_with("req_"));
    } else if (!param.empty()) {
      ASSERT_TRUE(inner.at("param").is_string()) << answer.body << " for " << body.substr(0, 200);
      EXPECT_TRUE(std::string_view(inner.at("param").as_string()).starts_with(param)) << answer.body << " for " << body.substr(0, 200);
    }
  }

  World world_;
};

TEST_F(BadInput, EveryFieldRefusesWhatItDoesNotTake) {
  for (const ProtocolTable& table : tables()) {
    for (const Field& field : table.fields) {
      for (const Value& value : values()) {
        SCOPED_TRACE(std::string(table.path) + " " + field.name + " = " + value.json.substr(0, 20));
        const int status = status_of(table, body_with(table, field.name, value.json));
        if (field.takes == kAny) {
          EXPECT_EQ(status, 200);
        } else if ((field.takes & value.type) == 0) {
          EXPECT_EQ(status, 400);
        } else {
          EXPECT_TRUE(status == 200 || status == 400 || (status == 404 && std::string_view(field.name) == "model")) << status;
        }
      }
      // null is the same as absent.
      const std::string_view name = field.name;
      const bool required = name == "model" || name == "messages" || name == "prompt" || name == "input";
      const int status = status_of(table, body_with(table, name, "null"));
      EXPECT_EQ(status, required && !(name == "prompt" && table.base[1].first != name) ? 400 : 200) << table.path << " " << name;
    }
  }
}

TEST_F(BadInput, ValuesOutOfRangeAreRefused) {
  for (const ProtocolTable& table : tables()) {
    for (const auto& [name, value] : table.out_of_range) {
      EXPECT_EQ(status_of(table, body_with(table, name, value), name), 400) << table.path << " " << name << " = " << value;
    }
  }
}

// What a client reads about a request is all of it.
TEST_F(BadInput, TheDocumentHasEveryFieldThatIsLookedAt) {
  RawClient client(world_.port());
  const json::value document = json::parse(client.request(get("/openapi.json"))->body);
  for (const ProtocolTable& table : tables()) {
    const json::value& schema = document.at("paths").at(table.path).at("post").at("requestBody").at("content").at("application/json").at("schema");
    const std::string name = std::string(schema.at("$ref").as_string()).substr(sizeof("#/components/schemas/") - 1);
    const json::object& properties = document.at("components").at("schemas").at(name).at("properties").as_object();
    for (const Field& field : table.fields) {
      EXPECT_TRUE(field.takes == kAny || properties.contains(field.name)) << table.path << " " << field.name;
    }
    for (const auto& [field, value] : table.out_of_range) EXPECT_TRUE(properties.contains(field)) << table.path << " " << field;
  }
}

// A field of one protocol is looked at in another only if its table says so.
TEST_F(BadInput, FieldsOfOtherProtocolsAreNobodysBusiness) {
  for (const ProtocolTable& table : tables()) {
    for (const ProtocolTable& other : tables()) {
      for (const Field& field : other.fields) {
        const std::string_view name = field.name;
        const bool own = std::any_of(table.fields.begin(), table.fields.end(), [&](const Field& mine) { return name == mine.name; });
        if (own) continue;
        for (const char* value : {"{\"odd\":[]}", "[[]]", "-7.5"}) EXPECT_EQ(status_of(table, body_with(table, name, value)), 200) << table.path << " " << name << " = " << value;
      }
    }
  }
}

TEST_F(BadInput, AFieldTwiceIsRefused) {
  for (const ProtocolTable& table : tables()) {
    for (const Field& field : table.fields) {
      EXPECT_EQ(status_of(table, body_with(table, field.name, "null", /*twice=*/true)), 400) << table.path << " " << field.name;
    }
  }
}

TEST_F(BadInput, TenMegabytesAreRefusedOrIgnored) {
  constexpr size_t kSize = kSanitized ? 1'000'000 : 10'000'000;
  const std::string huge = "\"" + std::string(kSize, 'x') + "\"";
  for (const ProtocolTable& table : tables()) {
    for (const Field& field : table.fields) {
      const int status = status_of(table, body_with(table, field.name, huge));
      if (field.takes == kAny) {
        EXPECT_EQ(status, 200) << field.name;
      } else {
        EXPECT_TRUE(status == 400 || status == 404 || (status == 200 && (field.takes & kString) != 0)) << table.path << " " << field.name << ": " << status;
      }
    }
    const std::string key = "\"" + std::string(kSize, 'k') + "\":1}";
    std::string body = body_with(table, "never_heard_of", "1");
    body.back() = ',';
    EXPECT_EQ(status_of(table, body + key), 200);
  }
}

TEST_F(BadInput, BrokenTextIsRefusedAndHalvesOfPairsAreReplaced) {
  for (const ProtocolTable& table : tables()) {
    const std::string_view second = table.base[1].first;
    const std::string_view text_field = second == "input" || second == "prompt" ? second : "never_heard_of";
    EXPECT_EQ(status_of(table, body_with(table, text_field, "\"\xff\"")), 400) << table.path;
    EXPECT_EQ(status_of(table, body_with(table, text_field, "\"\xed\xa0\x80\"")), 400) << table.path;
    EXPECT_EQ(status_of(table, body_with(table, text_field, "\"a\xc3\"")), 400) << table.path;
    EXPECT_EQ(status_of(table, body_with(table, text_field, "\"a\nb\"")), 400) << table.path;
    EXPECT_EQ(status_of(table, body_with(table, text_field, R"("\ud800 \udc00\ud83d\ude00")")), 200) << table.path;
    for (const char* body : {"", "{", "[]", "null", "5", "{}x", "{\"model\":\"fake\"", "\xef\xbb\xbf{}{}"}) EXPECT_EQ(status_of(table, body), 400) << table.path << body;
    EXPECT_EQ(status_of(table, body_with(table, "x", std::string(300, '[') + std::string(300, ']'))), 400) << table.path;
  }
  const std::string key = R"({"model":"fake","messages":[{"role":"user","content":"a\ud800"}],"thinking":{"type":"disabled"}})";
  ASSERT_EQ(status_of(tables().front(), key), 200);
  const std::string prompt = world_.tokenizer.decode(world_.inference.requests().back().prompt, false);
  EXPECT_NE(prompt.find("a\uFFFD"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer::api
