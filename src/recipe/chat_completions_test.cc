#include "recipe/chat_completions.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "recipe/completions.h"

namespace deepinfer::recipe {
namespace {

namespace json = boost::json;

constexpr OptionsContext kContext{.defaults = {.temperature = 0.7f, .top_p = 0.9f, .min_p = 0.0f, .repetition_penalty = 1.1f, .top_k = 20},
                                  .vocab_size = 1000};

std::optional<ChatRequest> parse(std::string_view text, Problems& problems) {
  return parse_chat_request(json::parse(text).as_object(), kContext, problems);
}

// A whole request from one more field.
std::string with(std::string_view field) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (field.empty() ? std::string() : "," + std::string(field)) + "}";
}

ChatRequest parsed(std::string_view text) {
  Problems problems;
  std::optional<ChatRequest> request = parse(text, problems);
  EXPECT_TRUE(request.has_value()) << text << ": " << (problems.any() ? problems.first().message : "");
  return request ? *request : ChatRequest();
}

struct BadCase {
  std::string body, param, message_part;
};

void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.body; }

class ChatRefuses : public testing::TestWithParam<BadCase> {};

TEST_P(ChatRefuses, WithTheFieldNamed) {
  Problems problems;
  EXPECT_FALSE(parse(GetParam().body, problems));
  ASSERT_TRUE(problems.any());
  EXPECT_EQ(problems.first().param, GetParam().param);
  EXPECT_NE(problems.first().message.find(GetParam().message_part), std::string::npos) << problems.first().message;
}

constexpr const char* kTool = R"({"type":"function","function":{"name":"f","parameters":{"type":"object"}}})";
const std::string kCall = R"({"id":"1","type":"function","function":{"name":"f","arguments":"{}"}})";
const std::string kCall2 = R"({"id":"2","type":"function","function":{"name":"f","arguments":"{}"}})";

std::string messages(std::string_view list) { return R"({"messages":[)" + std::string(list) + "]}"; }

INSTANTIATE_TEST_SUITE_P(Options, ChatRefuses, testing::Values(
    BadCase{with(R"("temperature":2.1)"), "temperature", "at most 2"},
    BadCase{with(R"("temperature":-0.1)"), "temperature", ""},
    BadCase{with(R"("temperature":"1")"), "temperature", "number"},
    BadCase{with(R"("temperature":true)"), "temperature", "number"},
    BadCase{with(R"("top_p":0)"), "top_p", "greater than 0"},
    BadCase{with(R"("top_p":1.5)"), "top_p", ""},
    BadCase{with(R"("top_k":-2)"), "top_k", ""},
    BadCase{with(R"("cache_salt":"")"), "cache_salt", ""},
    BadCase{with(R"("cache_salt":")" + std::string(257, 's') + "\""), "cache_salt", "256"},
    BadCase{with(R"("top_k":1.5)"), "top_k", "integer"},
    BadCase{with(R"("min_p":1.01)"), "min_p", ""},
    BadCase{with(R"("repetition_penalty":0)"), "repetition_penalty", ""},
    BadCase{with(R"("frequency_penalty":2.5)"), "frequency_penalty", ""},
    BadCase{with(R"("presence_penalty":-3)"), "presence_penalty", ""},
    BadCase{with(R"("n":0)"), "n", "from 1 to 8"},
    BadCase{with(R"("n":9)"), "n", "from 1 to 8"},
    BadCase{with(R"("seed":-1)"), "seed", ""},
    BadCase{with(R"("seed":9223372036854775808)"), "seed", ""},
    BadCase{with(R"("max_tokens":0)"), "max_tokens", ""},
    BadCase{with(R"("max_completion_tokens":-5)"), "max_completion_tokens", ""},
    BadCase{with(R"("max_tokens":3000000000)"), "max_tokens", ""},
    BadCase{with(R"("min_tokens":-1)"), "min_tokens", ""},
    BadCase{with(R"("stop":5)"), "stop", "string"},
    BadCase{with(R"("stop":["a",1])"), "stop", "string"},
    BadCase{with(R"("stop":["0","1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g"])"), "stop", "16"},
    BadCase{with(R"("stop":")" + std::string(1025, 'x') + R"(")"), "stop", "1024"},
    BadCase{with(R"("stream":"yes")"), "stream", "true or false"},
    BadCase{with(R"("stream_options":{"include_usage":true})"), "stream_options", "stream is true"},
    BadCase{with(R"("stream":true,"stream_options":{"include_usage":1})"), "stream_options.include_usage", ""},
    BadCase{with(R"("stream":true,"stream_options":[])"), "stream_options", "object"},
    BadCase{with(R"("logprobs":1)"), "logprobs", ""},
    BadCase{with(R"("top_logprobs":3)"), "top_logprobs", "needs logprobs"},
    BadCase{with(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs", "20"},
    BadCase{with(R"("logit_bias":[1])"), "logit_bias", "object"},
    BadCase{with(R"("logit_bias":{"x":1})"), "logit_bias", "token id"},
    BadCase{with(R"("logit_bias":{"1000":1})"), "logit_bias", "999"},
    BadCase{with(R"("logit_bias":{"-1":1})"), "logit_bias", ""},
    BadCase{with(R"("logit_bias":{"5":101})"), "logit_bias", "token 5"},
    BadCase{with(R"("logit_bias":{"5":"a"})"), "logit_bias", ""},
    BadCase{with(R"("stop_token_ids":[1000])"), "stop_token_ids", ""},
    BadCase{with(R"("stop_token_ids":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16])"), "stop_token_ids", "16"},
    BadCase{with(R"("response_format":{"type":"json_object"})"), "response_format", "the word \"json\""},
    BadCase{with(R"("response_format":{"type":"regex"})"), "response_format.pattern", "missing"},
    BadCase{with(R"("response_format":{"type":"structural_tag","triggers":["<f"]})"), "response_format.structures", "missing"},
    BadCase{with(R"("response_format":{"type":"structural_tag","triggers":["<f"],"structures":[{"begin":"<g>","schema":{},"end":"x"}]})"),
            "response_format.triggers", "no structure begins"},
    BadCase{with(R"("response_format":{"type":"structural_tag","triggers":["<f"],"structures":[{"begin":"<f>","schema":1,"end":"x"}]})"),
            "response_format.structures[0].schema", "object"},
    BadCase{with(R"("structured_outputs":{})"), "structured_outputs", "must have one of"},
    BadCase{with(R"("structured_outputs":{"regex":"a","choice":["b"]})"), "structured_outputs.choice", "it takes one"},
    BadCase{with(R"("structured_outputs":{"regex":1})"), "structured_outputs.regex", "string"},
    BadCase{with(R"("structured_outputs":{"choice":["a",1]})"), "structured_outputs.choice", "strings"},
    BadCase{with(R"("structured_outputs":{"json":"[]"})"), "structured_outputs.json", "JSON object"},
    BadCase{with(R"("structured_outputs":{"json":{},"whitespace_pattern":" *"})"), "structured_outputs.whitespace_pattern", "not supported"},
    BadCase{with(R"("structured_outputs":{"regex":"a"},"regex":"b")"), "regex", "one may"},
    BadCase{with(R"("regex":"a","response_format":{"type":"regex","pattern":"b"})"), "response_format.type", "one may"},
    BadCase{with(R"("grammar":"root ::= a")"), "grammar", "notation"},
    BadCase{with(R"("guided_json":{})"), "guided_json", "use structured_outputs"},
    BadCase{with(R"("response_format":{"type":"xml"})"), "response_format.type", "one of"},
    BadCase{with(R"("response_format":{})"), "response_format.type", "missing"},
    BadCase{with(R"("modalities":["text","audio"])"), "modalities", "text"},
    BadCase{with(R"("audio":{"voice":"a"})"), "audio", ""},
    BadCase{with(R"("reasoning_effort":"extreme")"), "reasoning_effort", "one of"},
    BadCase{with(R"("thinking":{"type":"maybe"})"), "thinking.type", "one of"},
    BadCase{with(R"("thinking":true)"), "thinking", "object"},
    BadCase{with(R"("chat_template_kwargs":{"enable_thinking":"no"})"), "chat_template_kwargs.enable_thinking", ""}));

INSTANTIATE_TEST_SUITE_P(Messages, ChatRefuses, testing::Values(
    BadCase{"{}", "messages", "missing"},
    BadCase{R"({"messages":null})", "messages", "missing"},
    BadCase{R"({"messages":"hi"})", "messages", "array"},
    BadCase{R"({"messages":[]})", "messages", "empty"},
    BadCase{messages("1"), "messages[0]", "object"},
    BadCase{messages(R"({"content":"x"})"), "messages[0].role", "one of"},
    BadCase{messages(R"({"role":"robot","content":"x"})"), "messages[0].role", "one of"},
    BadCase{messages(R"({"role":"user"})"), "messages[0].content", "missing"},
    BadCase{messages(R"({"role":"user","content":null})"), "messages[0].content", "missing"},
    BadCase{messages(R"({"role":"user","content":7})"), "messages[0].content", "string or an array"},
    BadCase{messages(R"({"role":"user","content":["x"]})"), "messages[0].content[0]", "object"},
    BadCase{messages(R"({"role":"user","content":[{"text":"x"}]})"), "messages[0].content[0].type", "missing"},
    BadCase{messages(R"({"role":"user","content":[{"type":"text"}]})"), "messages[0].content[0].text", "missing"},
    BadCase{messages(R"({"role":"user","content":[{"type":"poem","text":"x"}]})"), "messages[0].content[0].type", "unknown"},
    BadCase{messages(R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"http://a/b.png"}}]})"),
            "messages[0].content[1]", "text only"},
    BadCase{messages(R"({"role":"user","content":"x","name":1})"), "messages[0].name", "string"},
    BadCase{messages(R"({"role":"assistant","content":null})"), "messages[0].content", "content or tool_calls"},
    BadCase{messages(R"({"role":"assistant","content":"x","tool_calls":[]})"), "messages[0].tool_calls", "empty"},
    BadCase{messages(R"({"role":"assistant","tool_calls":[{"type":"function"}]})"), "messages[0].tool_calls[0].id", "missing"},
    BadCase{messages(R"({"role":"assistant","tool_calls":[{"id":"1","type":"custom"}]})"), "messages[0].tool_calls[0].type", "one of"},
    BadCase{messages(R"({"role":"assistant","tool_calls":[)" + kCall + "," + kCall + "]}"), "messages[0].tool_calls[1].id", "twice"},
    BadCase{messages(R"({"role":"assistant","tool_calls":[)" + kCall + "]}"), "messages", "result of tool call"},
    BadCase{messages(R"({"role":"assistant","tool_calls":[)" + kCall + "," + kCall2 + R"(]},{"role":"tool","tool_call_id":"1","content":"x"},{"role":"user","content":"q"})"),
            "messages[2]", "\"2\""},
    BadCase{messages(R"({"role":"assistant","tool_calls":[)" + kCall + R"(]},{"role":"tool","tool_call_id":"9","content":"x"})"),
            "messages[1].tool_call_id", "open"},
    BadCase{messages(R"({"role":"assistant","tool_calls":[)" + kCall + R"(]},{"role":"tool","tool_call_id":"1","content":"x"},{"role":"tool","tool_call_id":"1","content":"y"})"),
            "messages[2]", "must follow"},
    BadCase{messages(R"({"role":"user","content":"a"},{"role":"tool","tool_call_id":"1","content":"x"})"), "messages[1]", "must follow"},
    BadCase{messages(R"({"role":"user","content":"a"},{"role":"tool","content":"x"})"), "messages[1].tool_call_id", "missing"},
    BadCase{messages(R"({"role":"assistant","content":"a","prefix":true},{"role":"user","content":"x"})"), "messages[0].prefix", "last"},
    BadCase{messages(R"({"role":"assistant","content":"a","prefix":true,"tool_calls":[)" + kCall + "]}"), "messages[0].prefix", "tool_calls"},
    BadCase{messages(R"({"role":"assistant","content":"a","function_call":{"name":"f"}})"), "messages[0].function_call", "tool_calls"}));

INSTANTIATE_TEST_SUITE_P(Tools, ChatRefuses, testing::Values(
    BadCase{with(R"("tools":{})"), "tools", "array"},
    BadCase{with(R"("tools":[1])"), "tools[0]", "object"},
    BadCase{with(R"("tools":[{"function":{"name":"f"}}])"), "tools[0].type", "missing"},
    BadCase{with(R"("tools":[{"type":"custom","custom":{"name":"f"}}])"), "tools[0].type", "one of"},
    BadCase{with(R"("tools":[{"type":"function"}])"), "tools[0].function", "missing"},
    BadCase{with(R"("tools":[{"type":"function","function":{}}])"), "tools[0].function.name", "missing"},
    BadCase{with(R"("tools":[{"type":"function","function":{"name":"a b"}}])"), "tools[0].function.name", "1 to 128"},
    BadCase{with(R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"string"}}}])"), "tools[0].function.parameters", "object"},
    BadCase{with(R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])"), "tools[0].function.parameters", "object"},
    BadCase{with(R"("tools":[{"type":"function","function":{"name":"f","strict":1}}])"), "tools[0].function.strict", ""},
    BadCase{with(std::string(R"("tools":[)") + kTool + "," + kTool + "]"), "tools[1].function.name", "twice"},
    BadCase{with(R"("tool_choice":"required")"), "tool_choice", "needs tools"},
    BadCase{with(std::string(R"("tool_choice":"required","tools":[)") + kTool + "]"), "tool_choice", "not supported by this model yet"},
    BadCase{with(std::string(R"("tool_choice":{"type":"function","function":{"name":"f"}},"tools":[)") + kTool + "]"), "tool_choice", "not supported"},
    BadCase{with(R"("tool_choice":"sometimes")"), "tool_choice", "none, auto"},
    BadCase{with(R"("tool_choice":3)"), "tool_choice", "string or an object"},
    BadCase{with(R"("functions":[])"), "functions", "tools"},
    BadCase{with(R"("function_call":"auto")"), "function_call", "tools"},
    BadCase{R"({"messages":[{"role":"assistant","content":"a","prefix":true}],"tools":[)" + std::string(kTool) + "]}", "messages", "without tools"}));

TEST(ChatRequest, DefaultsComeFromTheServer) {
  const ChatRequest request = parsed(with(""));
  EXPECT_FLOAT_EQ(request.options.sampling.temperature, 0.7f);
  EXPECT_FLOAT_EQ(request.options.sampling.top_p, 0.9f);
  EXPECT_FLOAT_EQ(request.options.sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(request.options.sampling.top_k, 20);
  EXPECT_EQ(request.options.sampling.top_logprobs, -1);
  EXPECT_FALSE(request.options.max_tokens);
  EXPECT_FALSE(request.options.has_seed);
  EXPECT_EQ(request.options.n, 1);
  EXPECT_FALSE(request.options.stream);
  EXPECT_FALSE(request.conversation.thinking);
}

TEST(ChatRequest, NullIsAbsentAndUnknownFieldsAreIgnored) {
  const ChatRequest request = parsed(with(
      R"("temperature":null,"stop":null,"tools":null,"tool_choice":null,"stream_options":null,"logit_bias":null,"n":null,"user":5,"metadata":[],"anything":{"a":1})"));
  EXPECT_FLOAT_EQ(request.options.sampling.temperature, 0.7f);
  EXPECT_EQ(request.options.n, 1);
}

// Logits divided by it stay numbers.
TEST(ChatRequest, PenaltiesHaveALeast) {
  for (const char* least : {"1e-300", "1e-45", "0.00001"}) {
    EXPECT_EQ(parsed(with("\"repetition_penalty\":" + std::string(least))).options.sampling.repetition_penalty, 1e-3f);
  }
}

TEST(ChatRequest, ReadsEveryOption) {
  const ChatRequest request = parsed(with(
      R"("temperature":0,"top_p":1,"top_k":-1,"min_p":0.05,"repetition_penalty":1.2,"frequency_penalty":-2,"presence_penalty":2,
         "n":8,"seed":9223372036854775807,"max_tokens":5,"max_completion_tokens":7.0,"min_tokens":2,"ignore_eos":true,
         "stop":["a","","bc"],"stop_token_ids":[1,2],"cache_salt":"s","metadata":{"retention":"agent","x":1},"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false},
         "logprobs":true,"top_logprobs":20,"logit_bias":{"5":-100,"7":1.5})"));
  const GenerationOptions& options = request.options;
  EXPECT_EQ(options.sampling.temperature, 0.0f);
  EXPECT_EQ(options.sampling.top_k, 0);
  EXPECT_FLOAT_EQ(options.sampling.min_p, 0.05f);
  EXPECT_EQ(options.n, 8);
  EXPECT_TRUE(options.has_seed);
  EXPECT_EQ(options.sampling.seed, 9223372036854775807u);
  EXPECT_EQ(options.max_tokens, 7);
  EXPECT_EQ(options.sampling.min_tokens, 2);
  EXPECT_TRUE(options.sampling.ignore_eos);
  EXPECT_EQ(options.stop, (std::vector<std::string>{"a", "bc"}));
  EXPECT_EQ(options.sampling.stop_token_ids, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(options.cache_salt, "s");
  EXPECT_EQ(options.retention, "agent");
  EXPECT_TRUE(options.stream);
  EXPECT_TRUE(options.include_usage);
  EXPECT_EQ(options.sampling.top_logprobs, 20);
  EXPECT_EQ(options.sampling.logit_bias, (std::vector<std::pair<TokenId, float>>{{5, -100.0f}, {7, 1.5f}}));
}

TEST(ChatRequest, BlocksAreJoinedWithTwoNewlines) {
  const ChatRequest request = parsed(messages(
      R"({"role":"system","content":""},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"ann"})"));
  ASSERT_EQ(request.conversation.messages.size(), 2u);
  EXPECT_EQ(request.conversation.messages[0].role, Role::kSystem);
  EXPECT_EQ(request.conversation.messages[1].content, "a\n\nb");
  EXPECT_EQ(request.conversation.messages[1].name, "ann");
}

TEST(ChatRequest, ARefusalIsWhatTheAssistantSaid) {
  const ChatRequest request = parsed(messages(R"({"role":"user","content":"q"},{"role":"assistant","content":[{"type":"refusal","refusal":"No."}]},{"role":"user","content":"r"})"));
  EXPECT_EQ(request.conversation.messages[1].content, "No.");
}

TEST(ChatRequest, ToolTurnsKeepTheirParts) {
  const ChatRequest request = parsed(messages(
      R"({"role":"user","content":"q"},{"role":"assistant","content":null,"reasoning_content":"why","tool_calls":[)" + kCall + "," + kCall2 +
      R"(]},{"role":"tool","tool_call_id":"2","content":"y"},{"role":"tool","tool_call_id":"1","content":"x"},{"role":"assistant","content":"So","prefix":true})"));
  const auto& list = request.conversation.messages;
  ASSERT_EQ(list.size(), 5u);
  EXPECT_EQ(list[1].reasoning, "why");
  ASSERT_EQ(list[1].tool_calls.size(), 2u);
  EXPECT_EQ(list[1].tool_calls[0].arguments, "{}");
  EXPECT_EQ(list[2].tool_call_id, "2");
  EXPECT_TRUE(list[4].prefix);
}

TEST(ChatRequest, ToolsAreKeptAsReceivedAndNoneLeavesThemOut) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","z":1,"a":2}}}])";
  const ChatRequest request = parsed(with(tools + R"(,"tool_choice":"auto")"));
  ASSERT_EQ(request.conversation.tools.size(), 1u);
  EXPECT_EQ(request.conversation.tools[0].name, "f");
  EXPECT_EQ(request.conversation.tools[0].description, "d");
  EXPECT_EQ(json::serialize(request.conversation.tools[0].raw),
            R"({"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","z":1,"a":2}}})");
  EXPECT_TRUE(request.conversation.tools_active());
  EXPECT_FALSE(parsed(with(tools + R"(,"tool_choice":"none")")).conversation.tools_active());
  const ChatRequest bare = parsed(with(R"("tools":[{"type":"function","function":{"name":"g"}}])"));
  EXPECT_EQ(json::serialize(bare.conversation.tools[0].parameters), "{}");
}

TEST(ChatRequest, Thinking) {
  EXPECT_EQ(parsed(with(R"("reasoning_effort":"none")")).conversation.thinking, false);
  const ChatRequest high = parsed(with(R"("reasoning_effort":"high")"));
  EXPECT_FALSE(high.conversation.thinking);
  EXPECT_EQ(json::serialize(high.conversation.template_kwargs), R"({"reasoning_effort":"high"})");
  EXPECT_EQ(parsed(with(R"("thinking":{"type":"adaptive","budget_tokens":100},"reasoning_effort":"none")")).conversation.thinking, true);
  const ChatRequest kwargs = parsed(with(R"("chat_template_kwargs":{"enable_thinking":false,"custom":[1]})"));
  EXPECT_EQ(kwargs.conversation.thinking, false);
  EXPECT_EQ(json::serialize(kwargs.conversation.template_kwargs), R"({"custom":[1]})");
}

std::optional<CompletionRequest> parse_completion(std::string_view text, Problems& problems) {
  return parse_completion_request(json::parse(text).as_object(), kContext, problems);
}

TEST(CompletionRequest, PromptForms) {
  Problems problems;
  EXPECT_EQ(std::get<std::string>(parse_completion(R"({"prompt":"a"})", problems)->prompt), "a");
  EXPECT_EQ(std::get<std::string>(parse_completion(R"({"prompt":["a"]})", problems)->prompt), "a");
  EXPECT_EQ(std::get<std::vector<TokenId>>(parse_completion(R"({"prompt":[1,2]})", problems)->prompt), (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(std::get<std::vector<TokenId>>(parse_completion(R"({"prompt":[[3]]})", problems)->prompt), (std::vector<TokenId>{3}));
  const auto request = parse_completion(R"({"prompt":"a","logprobs":3,"n":2,"best_of":2,"suffix":"","echo":false,"parse_special":true})", problems);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->options.sampling.top_logprobs, 3);
  EXPECT_EQ(request->options.n, 2);
  EXPECT_TRUE(request->parse_special);
  EXPECT_FALSE(request->suffix) << "an empty one is none";
  EXPECT_EQ(parse_completion(R"({"prompt":"a","suffix":"b"})", problems)->suffix, "b");
}

TEST(CompletionRequest, Refuses) {
  const BadCase cases[] = {
      {"{}", "prompt", "missing"},
      {R"({"prompt":5})", "prompt", "string"},
      {R"({"prompt":[]})", "prompt", "empty"},
      {R"({"prompt":[[]]})", "prompt", "empty"},
      {R"({"prompt":["a","b"]})", "prompt", "one prompt"},
      {R"({"prompt":[1,"b"]})", "prompt", "token ids"},
      {R"({"prompt":[1000]})", "prompt", "999"},
      {R"({"prompt":[-1]})", "prompt", ""},
      {R"({"prompt":"a","echo":true})", "echo", ""},
      {R"({"prompt":"a","best_of":2})", "best_of", ""},
      {R"({"prompt":[1],"suffix":"b"})", "suffix", "text"},
      {R"({"prompt":"a","logprobs":21})", "logprobs", "20"},
      {R"({"prompt":"a","logprobs":true})", "logprobs", "integer"},
  };
  for (const BadCase& bad : cases) {
    Problems problems;
    EXPECT_FALSE(parse_completion(bad.body, problems)) << bad.body;
    ASSERT_TRUE(problems.any()) << bad.body;
    EXPECT_EQ(problems.first().param, bad.param) << bad.body;
    EXPECT_NE(problems.first().message.find(bad.message_part), std::string::npos) << problems.first().message;
  }
}

}  // namespace
}  // namespace deepinfer::recipe
