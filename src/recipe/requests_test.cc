// Requests of all protocols: what must be refused and what is made of the rest, against tests/golden/recipe/requests.json and by hand.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "read_file.h"
#include "recipe/fill_in.h"
#include "recipe/fake_tokenizer.h"
#include "recipe/protocol.h"
#include "recipe/request_parts.h"

namespace deepinfer::recipe {
namespace {

namespace json = boost::json;

Protocol protocol_named(std::string_view name) {
  return name == "chat" ? Protocol::kChat : name == "responses" ? Protocol::kResponses : name == "messages" ? Protocol::kMessages : Protocol::kCompletions;
}

struct Outcome {
  std::optional<ParsedRequest> request;
  FieldProblem problem;
  const Conversation& conversation() const { return std::get<Conversation>(request->prompt); }
};

Outcome parse(Protocol protocol, const json::object& body, const RequestContext& context) {
  Problems problems;
  Outcome out{.request = parse_request(protocol, body, context, problems)};
  EXPECT_EQ(out.request.has_value(), !problems.any());
  if (problems.any()) out.problem = problems.first();
  return out;
}

RequestContext context_of(Dialect dialect) { return {.options = {.vocab_size = 1000, .dialect = dialect, .accepts_images = true}}; }

Outcome responses(std::string_view members, RequestContext context = context_of(Dialect::kV41)) {
  return parse(Protocol::kResponses, json::parse("{" + std::string(members) + "}").as_object(), context);
}
Outcome messages(std::string_view members, RequestContext context = context_of(Dialect::kV41)) {
  return parse(Protocol::kMessages, json::parse("{" + std::string(members) + "}").as_object(), context);
}

std::string shown(const Conversation& conversation) {
  constexpr const char* kRoles[] = {"system", "developer", "user", "assistant", "tool", "reminder"};
  std::string out;
  for (const Message& message : conversation.messages) {
    out += std::string(out.empty() ? "" : " | ") + kRoles[static_cast<size_t>(message.role)] + ":";
    if (message.reasoning) out += "(" + *message.reasoning + ")";
    out += message.content;
    for (const ToolCall& call : message.tool_calls) out += " " + call.id + "=" + call.name + call.arguments;
    if (!message.tool_call_id.empty()) out += " for " + message.tool_call_id;
    if (message.prefix) out += " …";
  }
  return out;
}

json::value golden() { return json::parse(read_file(DI_SOURCE_DIR "/tests/golden/recipe/requests.json")); }

TEST(Requests, WhatTheGoldensRefuseIsRefused) {
  const json::value file = golden();
  for (const json::value& test : file.at("error_cases").as_array()) {
    const Dialect dialect = *dialect_of_name(std::string_view(test.at("dialect").as_string()));
    const Outcome got = parse(protocol_named(std::string_view(test.at("protocol").as_string())), test.at("request").as_object(), context_of(dialect));
    EXPECT_FALSE(got.request) << test.at("name");
    EXPECT_FALSE(got.problem.message.empty()) << test.at("name");
  }
}

TEST(Requests, SamplingIsThatOfTheGoldens) {
  const json::value file = golden();
  for (const json::value& test : file.at("sampling_cases").as_array()) {
    RequestContext context = context_of(*dialect_of_name(std::string_view(test.at("dialect").as_string())));
    const Outcome got = parse(Protocol::kChat, test.at("request").as_object(), context);
    ASSERT_TRUE(got.request) << got.problem.message;
    const GenerationOptions& options = got.request->options;
    EXPECT_FLOAT_EQ(options.sampling.temperature, test.at("temperature").to_number<float>()) << test;
    EXPECT_FLOAT_EQ(options.sampling.top_p, test.at("top_p").to_number<float>()) << test;
    EXPECT_EQ(options.max_tokens.value_or(*options.default_max_tokens), test.at("max_tokens").as_int64()) << test;
    // The operator may leave it to the client.
    context.options.force_thinking_sampling = false;
    const Outcome free = parse(Protocol::kChat, test.at("request").as_object(), context);
    const json::value* asked = test.at("request").as_object().if_contains("temperature");
    EXPECT_FLOAT_EQ(free.request->options.sampling.temperature, asked != nullptr ? asked->to_number<float>() : 1.0f) << test;
  }
}

TEST(Requests, PenaltiesCountOnlyWithoutThinking) {
  for (const bool thinking : {false, true}) {
    json::object body = json::parse(R"({"messages":[{"role":"user","content":"x"}],"presence_penalty":1,"frequency_penalty":1,"repetition_penalty":1.5})").as_object();
    body["thinking"] = json::object{{"type", thinking ? "enabled" : "disabled"}};
    const Outcome got = parse(Protocol::kChat, body, context_of(Dialect::kV4));
    EXPECT_EQ(got.request->options.sampling.presence_penalty, thinking ? 0 : 1);
    EXPECT_EQ(got.request->options.sampling.frequency_penalty, thinking ? 0 : 1);
    EXPECT_EQ(got.request->options.sampling.repetition_penalty, thinking ? 1 : 1.5f);
  }
}

TEST(Requests, AThinkingBudgetIsReadWhereThereIsOne) {
  const auto budget = [](Protocol protocol, const char* thinking) {
    const std::string body = R"({"messages":[{"role":"user","content":"x"}],"max_tokens":9,"thinking":)" + std::string(thinking) + "}";
    return parse(protocol, json::parse(body).as_object(), context_of(Dialect::kV41)).request->options.thinking_budget;
  };
  for (const Protocol protocol : {Protocol::kChat, Protocol::kMessages}) {
    EXPECT_EQ(budget(protocol, R"({"type":"enabled","budget_tokens":7})"), 7);
    EXPECT_EQ(budget(protocol, R"({"type":"enabled","budget_tokens":99999999999})"), std::numeric_limits<int32_t>::max());
    EXPECT_EQ(budget(protocol, R"({"budget_tokens":7})"), 7) << "it thinks unless told not to";
    EXPECT_EQ(budget(protocol, R"({"type":"disabled","budget_tokens":7})"), std::nullopt);
    EXPECT_EQ(budget(protocol, R"({"type":"adaptive"})"), std::nullopt);
  }
}

TEST(ChatRequests, DeepSeekDialectsTakeMore) {
  const auto chat = [](std::string_view body) { return parse(Protocol::kChat, json::parse(body).as_object(), context_of(Dialect::kV41)); };
  Outcome got = chat(R"({"messages":[{"role":"system","content":""},{"role":"latest_reminder","content":"today"},
    {"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAA","detail":"low"}},{"type":"text","text":"x"},
                              {"type":"file","file":{"file_data":"data:image/png;base64,AAAA"}}]}],
    "chat_template_kwargs":{"reasoning_effort":33,"drop_thinking":false},"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object"}}}})");
  ASSERT_TRUE(got.request) << got.problem.message;
  EXPECT_EQ(shown(got.conversation()), "reminder:today | user:\n\nx\n\n");
  ASSERT_EQ(got.conversation().images.size(), 2u);
  EXPECT_EQ(got.conversation().images[0].url, "data:image/png;base64,AAA=") << "padding is repaired";
  EXPECT_EQ(got.conversation().images[0].detail, ImageDetail::kLow);
  EXPECT_EQ(got.conversation().images[0].path, "messages[2].content[0]");
  EXPECT_EQ(got.conversation().messages[1].images[1].offset, 5u);
  EXPECT_EQ(got.conversation().effort_number, 33);
  EXPECT_EQ(got.conversation().history_reasoning, HistoryReasoning::kKeep);
  EXPECT_EQ(got.conversation().response_format.kind, ResponseFormat::Kind::kJsonSchema);
  got = chat(R"({"messages":[{"role":"user","content":"x"}],"thinking":{"type":"disabled"},"tool_choice":{"type":"function","function":{"name":"g"}},
    "tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g","strict":true}}],"parallel_tool_calls":false})");
  ASSERT_TRUE(got.request) << got.problem.message;
  ASSERT_EQ(got.conversation().tools.size(), 1u);
  EXPECT_EQ(got.conversation().tools[0].name, "g");
  EXPECT_EQ(got.conversation().tools[0].strict, true);
  EXPECT_EQ(got.conversation().tool_choice, ToolChoice::kRequired);
  EXPECT_TRUE(got.request->options.single_tool_call);
}

TEST(ChatRequests, DataUrlsHoldImages) {
  const auto problem = [](std::string_view url) {
    const std::string body = R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":")" + std::string(url) + R"("}}]}]})";
    return parse(Protocol::kChat, json::parse(body).as_object(), context_of(Dialect::kV41)).problem;
  };
  for (const char* good : {"data:image/png;base64,AAAA", "data:image/webp;x=y;base64,AAAA", "https://a.example/b"}) EXPECT_EQ(problem(good).message, "") << good;
  for (const char* bad : {"data:text/html;base64,AAAA", "data:;base64,AAAA", "data:image/png,AAAA", "data:image/png;base64,", "data:image/png;base64,AAAAA", "file:///x"}) {
    EXPECT_EQ(problem(bad).param, "messages[0].content[0]") << bad;
  }
}

TEST(ResponsesRequests, ItemsBecomeTurns) {
  Outcome got = responses(R"("instructions":"I","input":"hi")");
  EXPECT_EQ(shown(got.conversation()), "system:I | user:hi");
  got = responses(R"("input":[{"role":"developer","content":"D"},{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_file","file_data":"x"}]},
    {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"r1"},{"type":"reasoning_text","text":"r2"}]},
    {"type":"reasoning","summary":[{"type":"summary_text","text":"s"}]},
    {"role":"assistant","content":[{"type":"output_text","text":"A"},{"type":"refusal","refusal":"no"}]},{"role":"assistant","content":"B"},
    {"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call","call_id":"2","name":"g","namespace":"ns"},
    {"type":"custom_tool_call","call_id":"3","name":"apply_patch","input":"p\"q"},
    {"type":"function_call_output","call_id":"2","output":"o2"},{"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"o"},{"type":"input_text","text":"1"}]},
    {"type":"custom_tool_call_output","call_id":"3","output":"o3"},{"type":"web_search_call","id":"w"},{"type":"message","role":"system","content":"S"}])");
  ASSERT_TRUE(got.request) << got.problem.message << got.problem.param;
  EXPECT_EQ(shown(got.conversation()),
            "developer:D | user:a\n\n[Unsupported Document] | assistant:(r1\nr2\ns)A\n\nno\n\nB 1=f{} 2=ns::g{} 3=apply_patch{\"input\":\"p\\\"q\"}"
            " | tool:o2 for 2 | tool:o\n\n1 for 1 | tool:o3 for 3 | system:S");
  EXPECT_EQ(got.request->items.size(), 14u);
}

TEST(ResponsesRequests, ToolsHaveTwoNames) {
  Outcome got = responses(R"("input":[{"role":"user","content":"x"},{"type":"additional_tools","tools":[{"type":"function","name":"more"}]}],
    "tools":[{"type":"web_search"},{"type":"custom","name":"apply_patch","description":"ignored"},
             {"type":"namespace","name":"ns","description":"NS","tools":[{"type":"function","name":"n","description":"d"},{"type":"function","name":"n","parameters":null}]}],
    "reasoning":{"effort":"none"},"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"n"},{"type":"custom","name":"apply_patch"}]})");
  ASSERT_TRUE(got.request) << got.problem.message;
  const auto& tools = got.conversation().tools;
  ASSERT_EQ(tools.size(), 2u);
  EXPECT_EQ(tools[0].name, "apply_patch");
  EXPECT_TRUE(tools[0].description.starts_with("Use the `apply_patch` tool to edit files.\n"));
  EXPECT_EQ(tools[1].name, "ns::n");
  EXPECT_EQ(tools[1].description, "NS\nd");
  EXPECT_EQ(got.conversation().tool_choice, ToolChoice::kRequired);
  ASSERT_EQ(got.request->tool_names.size(), 3u);
  EXPECT_TRUE(got.request->tool_names[0].custom);
  EXPECT_EQ(got.request->tool_names[2].name, "ns::n_1");
  EXPECT_EQ(responses(R"("input":"x","tools":[{"type":"namespace","name":"ns","tools":[{"type":"function","name":"n"}]}])", context_of(Dialect::kV4))
                .conversation().tools[0].name, "ns__n");
}

TEST(ResponsesRequests, EchoWhatWasAsked) {
  const Outcome got = responses(
      R"("input":"x","max_output_tokens":5,"temperature":0.5,"metadata":{"a":"b"},"user":"u","parallel_tool_calls":false,"reasoning":{"effort":"low","summary":"auto"})");
  EXPECT_EQ(json::serialize(got.request->echo),
            R"({"instructions":null,"max_output_tokens":5,"previous_response_id":null,"prompt_cache_key":null,"safety_identifier":null,"user":"u",)"
            R"("metadata":{"a":"b"},"parallel_tool_calls":false,"reasoning":{"effort":"low","summary":null},"text":{"format":{"type":"text"}},)"
            R"("temperature":5E-1,"top_p":1E0,"tool_choice":"auto","tools":[],"top_logprobs":0,"store":false})");
}

TEST(ResponsesRequests, GoOnFromAnEarlierOne) {
  RequestContext context = context_of(Dialect::kV41);
  EXPECT_EQ(responses(R"("input":"x","previous_response_id":"r")", context).problem.param, "previous_response_id");
  context.stored_items = [](const std::string& id) -> std::optional<json::array> {
    if (id != "r") return std::nullopt;
    return json::parse(R"([{"role":"user","content":"q"},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"}])").as_array();
  };
  const Outcome got = responses(R"("input":[{"type":"function_call_output","call_id":"1","output":"o"}],"instructions":"I","previous_response_id":"r")", context);
  ASSERT_TRUE(got.request) << got.problem.message;
  EXPECT_EQ(shown(got.conversation()), "system:I | user:q | assistant: 1=f{} | tool:o for 1");
  EXPECT_EQ(got.request->items.size(), 1u) << "only its own are kept with it";
  EXPECT_EQ(got.request->previous_id, "r");
  EXPECT_NE(responses(R"("input":"x","previous_response_id":"s")", context).problem.message.find("does not exist"), std::string::npos);
}

TEST(ResponsesRequests, ReferencesAreFollowedOnce) {
  RequestContext context = context_of(Dialect::kV41);
  const char* input = R"("input":[{"role":"user","content":"q"},{"type":"item_reference","id":"msg_1"},{"role":"user","content":"r"}])";
  EXPECT_EQ(responses(input, context).problem.param, "input[1].id");
  context.stored_item = [](const std::string& id) -> std::optional<json::value> {
    if (id == "loop") return json::parse(R"({"type":"item_reference","id":"loop"})");
    return id == "msg_1" ? std::optional<json::value>(json::parse(R"({"type":"message","role":"assistant","content":"a"})")) : std::nullopt;
  };
  EXPECT_EQ(shown(responses(input, context).conversation()), "user:q | assistant:a | user:r");
  for (const char* id : {"loop", "other"}) {
    EXPECT_EQ(responses(R"("input":[{"type":"item_reference","id":")" + std::string(id) + "\"}]", context).problem.param, "input[0].id");
  }
}

TEST(MessagesRequests, ThreadsAreRefusedNotIgnored) {
  EXPECT_EQ(messages(R"("messages":[{"role":"user","content":"q"}],"thread":{"type":"create"})").problem.param, "thread");
}

TEST(ResponsesRequests, SealedReasoningComesBack) {
  RequestContext context = context_of(Dialect::kV41);
  context.open_reasoning = [](std::string_view sealed) { return sealed == "good" ? std::optional<std::string>("secret") : std::nullopt; };
  const auto with = [&](const char* item) { return responses(R"("input":[{"role":"user","content":"q"},)" + std::string(item) + R"(,{"role":"assistant","content":"a"}])", context); };
  EXPECT_EQ(shown(with(R"({"type":"reasoning","summary":[],"encrypted_content":"good"})").conversation()), "user:q | assistant:(secret)a");
  EXPECT_EQ(shown(with(R"({"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"open"}],"encrypted_content":"bad"})").conversation()),
            "user:q | assistant:(open)a");
  EXPECT_EQ(with(R"({"type":"reasoning","summary":[],"encrypted_content":"bad"})").problem.param, "input[1].encrypted_content");
}

TEST(MessagesRequests, AnyToolIsDemandedWithOrWithoutThinking) {
  const std::string user = R"("messages":[{"role":"user","content":"q"}],"tool_choice":{"type":"any"})", tools = R"(,"tools":[{"name":"f","input_schema":{"type":"object"}}])";
  for (const char* thinking : {"", R"(,"thinking":{"type":"disabled"})"}) {
    EXPECT_EQ(messages(user + tools + thinking).conversation().tool_choice, ToolChoice::kAny);
    EXPECT_EQ(messages(user + thinking).problem.param, "tool_choice") << "there is no tool";
    EXPECT_EQ(messages(user + tools + thinking, context_of(Dialect::kTemplate)).problem.param, "tool_choice") << "what its calls look like is not known";
  }
}

TEST(MessagesRequests, BlocksBecomeTurns) {
  const char* body = R"("system":[{"type":"text","text":"x-anthropic-billing-header: v=1;"},{"type":"text","text":"S"}],"messages":[{"role":"user","content":"q"},
    {"role":"assistant","content":[{"type":"thinking","thinking":"t1","signature":"?"},{"type":"thinking","thinking":"t2","signature":""},{"type":"text","text":"L"},
      {"type":"tool_use","id":"1","name":"ls","input":{"b":1,"a":"x"}},{"type":"tool_use","id":"2","name":"ls","input":{}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"2"},{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"r"},{"type":"text","text":"s"}],"is_error":true},
      {"type":"text","text":"after"},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"A"}},{"type":"tool_reference","tool_name":"T"}]},
    {"role":"system","content":"M"},{"role":"assistant","content":"go"}])";
  Outcome got = messages(body);
  ASSERT_TRUE(got.request) << got.problem.message << got.problem.param;
  EXPECT_EQ(shown(got.conversation()),
            "system:S | user:q | assistant:(t1\n\nt2)L 1=ls{\"b\":1,\"a\":\"x\"} 2=ls{} | tool: for 2 | tool:r\n\ns for 1 | user:after"
            " | user:[Unsupported document type: application/pdf] | user:T | system:M | assistant:go …");
  got = messages(body, context_of(Dialect::kV4));
  EXPECT_NE(shown(got.conversation()).find("user:<system-reminder>\nM\n</system-reminder>"), std::string::npos);
}

TEST(Requests, AConversationHoldsSomething) {
  EXPECT_EQ(messages(R"("messages":[{"role":"user","content":[]}])").problem.param, "messages");
  EXPECT_EQ(messages(R"("messages":[{"role":"user","content":[{"type":"server_tool_use"}]}])").problem.param, "messages");
  EXPECT_EQ(responses(R"("input":[{"type":"web_search_call"}])").problem.param, "input");
  EXPECT_EQ(parse(Protocol::kChat, json::parse(R"({"messages":[{"role":"system","content":""}]})").as_object(), context_of(Dialect::kV4)).problem.param, "messages");
  EXPECT_TRUE(responses(R"("instructions":"I")").request);
}

TEST(MessagesRequests, ImagesBecomeDataUrls) {
  const auto image = [](std::string_view source, RequestContext context = context_of(Dialect::kV41)) {
    return messages(R"("messages":[{"role":"user","content":[{"type":"image","source":)" + std::string(source) + "}]}]", std::move(context));
  };
  EXPECT_EQ(image(R"({"type":"base64","media_type":"image/png","data":"AA"})").conversation().images.at(0).url, "data:image/png;base64,AA==");
  EXPECT_EQ(image(R"({"type":"url","url":"https://a.example/b.png"})").conversation().images.at(0).url, "https://a.example/b.png");
  const std::string at = "messages[0].content[0].source";
  EXPECT_EQ(image(R"({"type":"base64","media_type":"image/png","data":"A*"})").problem.param, at);
  EXPECT_EQ(image(R"({"type":"base64","media_type":"image/bmp","data":"AA"})").problem.param, at + ".media_type");
  EXPECT_EQ(image(R"({"type":"url","url":"file:///etc/passwd"})").problem.param, at);
  RequestContext blind = context_of(Dialect::kV41);
  blind.options.accepts_images = false;
  EXPECT_EQ(image(R"({"type":"base64","media_type":"image/png","data":"AA"})", blind).problem.message, "images are not supported: this model reads text only");
  EXPECT_NE(image(R"({"type":"base64","media_type":"image/png","data":"A*"})", blind).problem.message.find("data URL"), std::string::npos) << "broken first";
}

TEST(FillIn, ShowsBothSidesOfTheHole) {
  const FakeTokenizer deepseek({{1, "<｜begin▁of▁sentence｜>", true}, {2, "<｜fim▁begin｜>", true}, {3, "<｜fim▁hole｜>", true}, {4, "<｜fim▁end｜>", true}});
  std::optional<Prompt> prompt = fill_in_prompt("a<｜fim▁hole｜>", "b", deepseek);
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt_text_marked(*prompt), "⟦1 <｜begin▁of▁sentence｜>⟧⟦2 <｜fim▁begin｜>⟧a<｜fim▁hole｜>⟦3 <｜fim▁hole｜>⟧b⟦4 <｜fim▁end｜>⟧");
  const FakeTokenizer qwen({{2, "<|fim_prefix|>", true}, {3, "<|fim_suffix|>", true}, {4, "<|fim_middle|>", true}}, 1);
  EXPECT_EQ(prompt_text_marked(*fill_in_prompt("a", "b", qwen)), "⟦2 <|fim_prefix|>⟧a⟦3 <|fim_suffix|>⟧b⟦4 <|fim_middle|>⟧");
  EXPECT_FALSE(fill_in_prompt("a", "b", FakeTokenizer({{2, "<|fim_prefix|>", true}})));
}

TEST(Prompt, AMarkedControlTokenCannotBeTyped) {
  const auto plain = [](const char* text) { return Segment{.text = text}; };
  const Segment control{.kind = Segment::Kind::kSpecial, .id = 7, .text = "<x>"};
  EXPECT_EQ(prompt_text_marked({.segments = {control, plain("a ⟦7 <x>⟧ ⟦"), control, plain("⟦⟦"), control}}), "⟦7 <x>⟧a ⟦⟦7 <x>⟧ ⟦⟦⟦7 <x>⟧⟦⟦⟦⟦⟦7 <x>⟧");
}

TEST(Quotable, CutsBetweenCodePoints) {
  EXPECT_EQ(quotable("abc", 2), "ab");
  EXPECT_EQ(quotable("aé", 2), "a");
  EXPECT_EQ(quotable("aé", 3), "aé");
  EXPECT_EQ(quotable("a\xff\xc3z\xed\xa0\x80"), "a\uFFFD\uFFFDz\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(quotable(std::string(1000, 'x')).size(), 64u);
}

}  // namespace
}  // namespace deepinfer::recipe
