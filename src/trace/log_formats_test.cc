// The same conversations as each tool writes them give the same figures; and those figures are what a direct count says.
#include "audit_fixture.h"

#include <functional>

#include <zlib.h>
#include <zstd.h>

#include "base/base64.h"
#include "read_file.h"

namespace deepinfer::trace {
namespace {

struct Request {
  json::object body;
  int64_t ms;
  int64_t input, cached, output;
};

std::vector<Talk> talks(bool bare) {
  Rng rng(5);
  std::vector<Talk> out;
  const std::string system = words(rng, 700);
  for (int i = 0; i < 5; ++i) {
    Talk talk;
    if (!bare) {
      talk.system = system;
      talk.tools = {tool("read_file", "reads a file"), tool("search", "finds text")};
    }
    talk.session = "s" + std::to_string(i);
    for (int t = 0; t < 4; ++t) {
      Turn turn{words(rng, 150 + rng.below(200)), words(rng, 100 + rng.below(300)), words(rng, 120), "", "", ""};
      if (t % 2 == 1) {
        turn.tool = "read_file";
        turn.arguments = fmt::format("{{\"path\":\"src/{}.cc\",\"lines\":{}}}", rng.below(5), rng.below(100));
        turn.result = words(rng, 400);
      }
      talk.turns.push_back(turn);
    }
    out.push_back(std::move(talk));
  }
  return out;
}

// The calls of the conversations, one after the other.
std::vector<Request> requests(const std::vector<Talk>& all) {
  std::vector<Request> out;
  int64_t ms = kNovemberMs;
  for (const Talk& talk : all) {
    for (size_t t = 0; t < talk.turns.size(); ++t) {
      for (const bool after : {false, true}) {
        if (after && talk.turns[t].tool.empty()) continue;
        out.push_back({chat_body(talk, t, after), ms, 1000 + static_cast<int64_t>(out.size()), 100, 50});
        ms += 45'000;
      }
    }
  }
  return out;
}

json::object usage(const Request& r) {
  return {{"prompt_tokens", r.input}, {"completion_tokens", r.output}, {"prompt_tokens_details", json::object{{"cached_tokens", r.cached}}}};
}

using Writer = json::object (*)(const Request&);

json::object with_time(json::object body, const Request& r) {
  body["timestamp"] = iso(r.ms);
  body["usage"] = usage(r);
  return body;
}

json::object otel_attribute(const char* key, json::object value) { return {{"key", key}, {"value", std::move(value)}}; }

json::object otel(const Request& r) {
  json::array messages, system;
  for (const json::value& value : r.body.at("messages").get_array()) {
    const json::object& m = value.get_object();
    const std::string role = text_of(m.at("role"));
    if (role == "system") {
      system.push_back(json::object{{"type", "text"}, {"content", m.at("content")}});
      continue;
    }
    json::array parts;
    if (m.contains("reasoning_content")) parts.push_back(json::object{{"type", "reasoning"}, {"content", m.at("reasoning_content")}});
    if (role == "tool") parts.push_back(json::object{{"type", "tool_call_response"}, {"id", m.at("tool_call_id")}, {"response", m.at("content")}});
    else if (m.at("content").is_string()) parts.push_back(json::object{{"type", "text"}, {"content", m.at("content")}});
    if (m.contains("tool_calls")) {
      for (const json::value& call : m.at("tool_calls").get_array()) {
        parts.push_back(json::object{{"type", "tool_call"}, {"id", call.at("id")}, {"name", call.at("function").at("name")}, {"arguments", json::parse(text_of(call.at("function").at("arguments")))}});
      }
    }
    messages.push_back(json::object{{"role", role}, {"parts", std::move(parts)}});
  }
  json::array attributes{otel_attribute("gen_ai.request.model", {{"stringValue", r.body.at("model")}}),
                         otel_attribute("gen_ai.input.messages", {{"stringValue", json::serialize(messages)}}),
                         otel_attribute("gen_ai.usage.input_tokens", {{"intValue", std::to_string(r.input)}}),
                         otel_attribute("gen_ai.usage.cache_read.input_tokens", {{"intValue", std::to_string(r.cached)}}),
                         otel_attribute("gen_ai.usage.output_tokens", {{"intValue", std::to_string(r.output)}})};
  if (!system.empty()) attributes.push_back(otel_attribute("gen_ai.system_instructions", {{"stringValue", json::serialize(system)}}));
  if (r.body.contains("tools")) attributes.push_back(otel_attribute("gen_ai.tool.definitions", {{"stringValue", json::serialize(r.body.at("tools"))}}));
  const json::object span{{"name", "chat"}, {"startTimeUnixNano", std::to_string(r.ms) + "000000"}, {"attributes", std::move(attributes)}};
  return {{"resourceSpans", json::array{json::object{{"scopeSpans", json::array{json::object{{"spans", json::array{span}}}}}}}}};
}

// What OTLP makes of a structured attribute.
json::object any_value(const json::value& value) {
  json::array values;
  if (const json::object* object = value.if_object()) {
    for (const auto& [key, inner] : *object) values.push_back(json::object{{"key", key}, {"value", any_value(inner)}});
    return {{"kvlistValue", json::object{{"values", std::move(values)}}}};
  }
  if (const json::array* array = value.if_array()) {
    for (const json::value& inner : *array) values.push_back(any_value(inner));
    return {{"arrayValue", json::object{{"values", std::move(values)}}}};
  }
  if (value.is_string()) return {{"stringValue", value}};
  if (value.is_bool()) return {{"boolValue", value}};
  if (value.is_int64()) return {{"intValue", std::to_string(value.get_int64())}};
  if (value.is_null()) return {};
  return {{"doubleValue", value}};
}

json::object otel_structured(const Request& r) {
  json::object out = otel(r);
  json::object& span = out["resourceSpans"].as_array()[0].as_object()["scopeSpans"].as_array()[0].as_object()["spans"].as_array()[0].as_object();
  for (json::value& attribute : span["attributes"].as_array()) {
    json::object& value = attribute.as_object()["value"].as_object();
    const json::value* text = value.if_contains("stringValue");
    if (text != nullptr && text->get_string().starts_with('[')) value = any_value(json::parse(text->get_string()));
  }
  return out;
}

json::object span_of(const Request& r, json::array attributes, json::array events) {
  attributes.push_back(otel_attribute("gen_ai.request.model", {{"stringValue", r.body.at("model")}}));
  attributes.push_back(otel_attribute("gen_ai.usage.prompt_tokens", {{"intValue", std::to_string(r.input)}}));
  attributes.push_back(otel_attribute("gen_ai.usage.cache_read_input_tokens", {{"intValue", std::to_string(r.cached)}}));
  attributes.push_back(otel_attribute("gen_ai.usage.completion_tokens", {{"intValue", std::to_string(r.output)}}));
  const json::object span{{"name", "chat"}, {"startTimeUnixNano", std::to_string(r.ms) + "000000"}, {"attributes", std::move(attributes)}, {"events", std::move(events)}};
  return {{"resourceSpans", json::array{json::object{{"scopeSpans", json::array{json::object{{"spans", json::array{span}}}}}}}}};
}

json::array numbered_tools(const Request& r) {
  json::array out;
  if (!r.body.contains("tools")) return out;
  for (const json::value& tool : r.body.at("tools").get_array()) {
    const std::string stem = fmt::format("llm.request.functions.{}.", out.size() / 3);
    const json::object& f = tool.at("function").get_object();
    out.push_back(otel_attribute((stem + "name").c_str(), {{"stringValue", f.at("name")}}));
    out.push_back(otel_attribute((stem + "description").c_str(), {{"stringValue", f.at("description")}}));
    out.push_back(otel_attribute((stem + "parameters").c_str(), {{"stringValue", json::serialize(f.at("parameters"))}}));
  }
  return out;
}

// OpenLLMetry: numbered attributes, blocks of content as the JSON of their list.
json::object otel_numbered(const Request& r) {
  json::array attributes = numbered_tools(r);
  const json::object body = messages_body(r.body);
  int i = 0;
  const auto add = [&](const json::value& role, const json::value& content) {
    const std::string stem = fmt::format("gen_ai.prompt.{}.", i++);
    attributes.push_back(otel_attribute((stem + "role").c_str(), {{"stringValue", role}}));
    attributes.push_back(otel_attribute((stem + "content").c_str(), {{"stringValue", content.is_string() ? text_of(content) : json::serialize(content)}}));
  };
  if (body.contains("system")) add("system", body.at("system"));
  for (const json::value& message : body.at("messages").get_array()) add(message.at("role"), message.at("content"));
  return span_of(r, std::move(attributes), {});
}

// Semantic conventions 1.27: all messages in one event of the span.
json::object otel_prompt_event(const Request& r) {
  const json::object event{{"name", "gen_ai.content.prompt"},
                           {"attributes", json::array{otel_attribute("gen_ai.prompt", {{"stringValue", json::serialize(r.body.at("messages"))}})}}};
  return span_of(r, numbered_tools(r), {event});
}

// 1.28 to 1.36: an event a message, whose name is its role.
json::object otel_message_events(const Request& r) {
  json::array events;
  for (const json::value& value : r.body.at("messages").get_array()) {
    json::object message = value.get_object();
    const std::string name = "gen_ai." + text_of(message.at("role")) + ".message";
    message.erase("role");
    if (message.contains("tool_call_id")) {
      message["id"] = message.at("tool_call_id");
      message.erase("tool_call_id");
    }
    events.push_back(json::object{{"name", name}, {"attributes", json::array{otel_attribute("gen_ai.event.content", {{"stringValue", json::serialize(message)}})}}});
  }
  return span_of(r, numbered_tools(r), std::move(events));
}

// The answer as a stream: usage stands in its last chunk.
std::string streamed(const Request& r) {
  return "data: {\"choices\":[{\"delta\":{\"content\":\"usage\"}}]}\n\ndata: " + json::serialize(json::object{{"choices", json::array{}}, {"usage", usage(r)}}) + "\n\ndata: [DONE]\n\n";
}

json::object har_entry(const Request& r) {
  return {{"startedDateTime", iso(r.ms)}, {"time", 812.5}, {"request", json::object{{"method", "POST"}, {"url", "https://x/v1/chat/completions"}, {"postData", json::object{{"text", json::serialize(r.body)}}}}},
          {"response", json::object{{"status", 200}, {"content", json::object{{"text", json::serialize(json::object{{"usage", usage(r)}})}}}}}};
}

const std::pair<const char*, Writer> kWriters[] = {
    {"chat", [](const Request& r) { return with_time(r.body, r); }},
    {"messages", [](const Request& r) { return with_time(messages_body(r.body), r); }},
    {"responses", [](const Request& r) { return with_time(responses_body(r.body), r); }},
    {"litellm", [](const Request& r) {
       json::object out{{"request_id", "x"}, {"call_type", "acompletion"}, {"startTime", iso(r.ms)}, {"model", r.body.at("model")}, {"spend", 0.1}, {"prompt_tokens", r.input},
                        {"completion_tokens", r.output}, {"messages", r.body.at("messages")}, {"usage", usage(r)}};
       if (r.body.contains("tools")) out["proxy_server_request"] = json::object{{"tools", r.body.at("tools")}};
       return out;
     }},
    {"litellm", [](const Request& r) {
       return json::object{{"call_type", "acompletion"}, {"startTime", static_cast<double>(r.ms) / 1000}, {"messages", json::object{}}, {"proxy_server_request", json::serialize(r.body)},
                           {"response", json::object{{"usage", usage(r)}}}};
     }},
    // Langfuse's usageDetails count each token once; its API gives sums beside them, and its exports to a store other names.
    {"langfuse", [](const Request& r) {
       return json::object{{"type", "GENERATION"}, {"startTime", iso(r.ms)}, {"model", r.body.at("model")}, {"usage", json::object{{"input", r.input}, {"output", r.output}, {"unit", "TOKENS"}}},
                           {"usageDetails", json::object{{"input", r.input - r.cached}, {"input_cached_tokens", r.cached}, {"output", r.output}}}, {"input", r.body}};
     }},
    {"langfuse", [](const Request& r) {
       return json::object{{"type", "GENERATION"}, {"start_time", iso(r.ms)}, {"provided_model_name", r.body.at("model")}, {"input", json::serialize(r.body)},
                           {"usage_details", json::object{{"input", r.input - r.cached}, {"input_cache_read", r.cached}, {"output", r.output}}}};
     }},
    {"helicone", [](const Request& r) {
       return json::object{{"request_id", "x"}, {"request_created_at", iso(r.ms)}, {"request_body", json::serialize(r.body)}, {"response_body", json::serialize(json::object{{"usage", usage(r)}})}};
     }},
    {"otel", otel},
    {"otel", otel_structured},
    {"otel", otel_numbered},
    {"otel", otel_prompt_event},
    {"otel", otel_message_events},
    {"body-log", [](const Request& r) {
       return json::object{{"time_iso8601", iso(r.ms)}, {"request_uri", "/v1/chat/completions"}, {"request_body", json::serialize(r.body)}, {"usage", usage(r)}};
     }},
    {"body-log", [](const Request& r) { return json::object{{"msec", fmt::format("{:.3f}", static_cast<double>(r.ms) / 1000)}, {"request", r.body}, {"response", json::object{{"usage", usage(r)}}}}; }},
    {"envoy-tap", [](const Request& r) {
       return json::object{{"timestamp", r.ms},
                           {"http_buffered_trace", json::object{{"request", json::object{{"body", json::object{{"as_bytes", encode_base64(json::serialize(r.body))}}}}},
                                                                {"response", json::object{{"body", json::object{{"as_string", json::serialize(json::object{{"usage", usage(r)}})}}}}}}}};
     }},
    {"deepinfer", [](const Request& r) {
       return json::object{{"time", iso(r.ms)}, {"id", "req"}, {"endpoint", "chat"}, {"model", r.body.at("model")}, {"status", 200}, {"prompt_tokens", r.input}, {"cached_tokens", r.cached},
                           {"completion_tokens", r.output}, {"e2e_ms", 3.5}, {"request", json::serialize(r.body)}};
     }},
    {"body-log", [](const Request& r) {
       return json::object{{"time_iso8601", iso(r.ms)}, {"request_time", "0.812"}, {"request_body", json::serialize(r.body)}, {"response_body", streamed(r)}};
     }},
    {"har", har_entry},
    {"har", [](const Request& r) {
       json::object out = har_entry(r);
       out["response"].as_object()["content"] = json::object{{"encoding", "base64"}, {"text", encode_base64(streamed(r))}};
       return out;
     }},
};

class LogFormats : public AuditFixture {
 protected:
  // What must not depend on the format.
  static std::string figures(const json::object& report) {
    json::object out;
    for (const char* key : {"tokens", "reuse", "block_sizes", "per_tenant", "routing", "repetition", "timeline", "breakers", "money"}) out[key] = report.at(key);
    return json::serialize(out);
  }
  static std::string write(const std::vector<Request>& all, Writer writer, const std::string& path) {
    std::vector<std::string> lines;
    for (const Request& r : all) lines.push_back(json::serialize(writer(r)));
    write_lines(path, lines);
    return path;
  }
};

TEST_F(LogFormats, TheSameConversationsGiveTheSameFigures) {
  const std::vector<Request> all = requests(talks(false));
  std::string expected;
  int i = 0;
  for (const auto& [name, writer] : kWriters) {
    const json::object found = report_of(write(all, writer, file(std::to_string(++i) + ".jsonl")));
    EXPECT_EQ(json::serialize(found.at("input").at("by_format")), json::serialize(json::object{{name, all.size()}})) << i;
    EXPECT_EQ(found.at("input").at("skipped").get_object().size(), 0u) << name;
    if (expected.empty()) expected = figures(found);
    EXPECT_EQ(figures(found), expected) << name << " " << i;
  }
}

TEST_F(LogFormats, FiguresAreThoseOfADirectCount) {
  const std::vector<Request> all = requests(talks(false));
  const json::object found = report_of(write(all, kWriters[0].second, file("chat.jsonl")));
  std::vector<std::vector<TokenId>> before;
  int64_t input = 0, hit = 0;
  for (const Request& r : all) {
    const std::vector<TokenId> ids = tokens(r.body);
    size_t best = 0;
    for (const auto& old : before) best = std::max<size_t>(best, static_cast<size_t>(std::mismatch(ids.begin(), ids.end(), old.begin(), old.end()).first - ids.begin()) / 128);
    // Blocks that nobody had in full are not there, however long the common part is.
    hit += static_cast<int64_t>(best) * 128;
    input += static_cast<int64_t>(ids.size());
    before.push_back(ids);
  }
  EXPECT_EQ(found.at("tokens").at("input").to_number<int64_t>(), input);
  EXPECT_EQ(found.at("reuse").at("unlimited").at("hit_tokens").to_number<int64_t>(), hit);
  EXPECT_GT(hit, input / 2);
  EXPECT_EQ(found.at("tokens").at("logged").at("cached").to_number<int64_t>(), static_cast<int64_t>(all.size()) * 100);
}

TEST_F(LogFormats, SessionFilesOfAgentsGiveTheSameFigures) {
  const std::vector<Talk> all = talks(true);
  const json::object chat = report_of(write(requests(all), kWriters[0].second, file("chat.jsonl")));
  std::filesystem::create_directories(file("claude"));
  std::filesystem::create_directories(file("codex"));
  int64_t ms = kNovemberMs;
  for (const Talk& talk : all) {
    std::vector<std::string> claude, codex;
    std::string parent;
    int number = 0;
    const auto claude_line = [&](const char* type, json::object message) {
      const std::string uuid = talk.session + "-" + std::to_string(++number);
      json::object line{{"type", type}, {"uuid", uuid}, {"parentUuid", parent.empty() ? json::value(nullptr) : json::value(parent)}, {"sessionId", talk.session},
                        {"timestamp", iso(ms)}, {"message", std::move(message)}};
      claude.push_back(json::serialize(line));
      parent = uuid;
    };
    const auto codex_line = [&](const char* type, json::object payload) {
      codex.push_back(json::serialize(json::object{{"timestamp", iso(ms)}, {"type", type}, {"payload", std::move(payload)}}));
    };
    claude.push_back(R"({"type":"summary","summary":"x","leafUuid":"y"})");
    codex_line("session_meta", {{"id", talk.session}});
    codex_line("turn_context", {{"model", talk.model}});
    for (size_t t = 0; t < talk.turns.size(); ++t) {
      const Turn& turn = talk.turns[t];
      const std::string id = "call_" + std::to_string(t), answer = talk.session + "m" + std::to_string(t);
      const auto text_item = [](const char* role, const char* type, const std::string& text) {
        return json::object{{"type", "message"}, {"role", role}, {"content", json::array{json::object{{"type", type}, {"text", text}}}}};
      };
      claude_line("user", {{"role", "user"}, {"content", turn.user}});
      codex_line("response_item", text_item("user", "input_text", turn.user));
      if (!turn.tool.empty()) {
        claude_line("assistant", {{"id", answer + "c"}, {"model", talk.model}, {"role", "assistant"},
                                  {"content", json::array{json::object{{"type", "tool_use"}, {"id", id}, {"name", turn.tool}, {"input", json::parse(turn.arguments)}}}}});
        codex_line("response_item", {{"type", "function_call"}, {"call_id", id}, {"name", turn.tool}, {"arguments", turn.arguments}});
        ms += 45'000;
        claude_line("user", {{"role", "user"}, {"content", json::array{json::object{{"type", "tool_result"}, {"tool_use_id", id}, {"content", turn.result}}}}});
        codex_line("response_item", {{"type", "function_call_output"}, {"call_id", id}, {"output", turn.result}});
      }
      // An answer comes in a line a block; they are one message and one call.
      for (const auto& [type, text] : {std::pair<const char*, std::string>{"thinking", turn.reasoning}, {"text", turn.answer}}) {
        claude_line("assistant", {{"id", answer}, {"model", talk.model}, {"role", "assistant"}, {"content", json::array{json::object{{"type", type}, {type, text}}}},
                                  {"usage", json::object{{"input_tokens", 5}, {"cache_read_input_tokens", 20}, {"output_tokens", 7}}}});
      }
      codex_line("response_item", {{"type", "reasoning"}, {"summary", json::array{json::object{{"type", "summary_text"}, {"text", turn.reasoning}}}}});
      codex_line("response_item", text_item("assistant", "output_text", turn.answer));
      codex_line("event_msg", {{"type", "token_count"}, {"info", json::object{{"last_token_usage", json::object{{"input_tokens", 25}, {"cached_input_tokens", 20}, {"output_tokens", 7}}}}}});
      ms += 45'000;
    }
    write_lines(file("claude/" + talk.session + ".jsonl"), claude);
    write_lines(file("codex/rollout-" + talk.session + ".jsonl"), codex);
  }
  for (const char* name : {"claude", "codex"}) {
    const auto paths = find_logs({file(name)});
    ASSERT_TRUE(paths);
    EXPECT_EQ(paths->size(), all.size());
    const json::object found = report(*audit(*paths));
    EXPECT_EQ(found.at("input").at("requests"), chat.at("input").at("requests")) << name;
    EXPECT_EQ(found.at("tokens").at("input"), chat.at("tokens").at("input")) << name;
    for (const char* key : {"reuse", "repetition", "timeline"}) EXPECT_EQ(json::serialize(found.at(key)), json::serialize(chat.at(key))) << name << " " << key;
    EXPECT_EQ(found.at("tokens").at("logged").at("cached").to_number<int64_t>(), 20 * 4 * 5) << name;
    EXPECT_EQ(found.at("input").at("incomplete"), found.at("input").at("requests")) << name;
  }
}

// Claude Code hangs each result of parallel tool calls under the line of its own call: the way up from the next turn passes one of them only.
TEST_F(LogFormats, ResultsOfParallelCallsAreInTheNextPrompt) {
  Rng rng(9);
  const std::string ask = words(rng, 300), thought = words(rng, 80), answer = words(rng, 90), next = words(rng, 60);
  const std::string results[] = {words(rng, 500), words(rng, 700), words(rng, 400)};
  const auto call = [](const char* id) { return json::object{{"id", id}, {"type", "function"}, {"function", json::object{{"name", "read"}, {"arguments", R"({"path":"x"})"}}}}; };
  const json::object user{{"role", "user"}, {"content", ask}};
  const json::object calls{{"role", "assistant"}, {"content", nullptr}, {"reasoning_content", thought}, {"tool_calls", json::array{call("a"), call("b"), call("c")}}};
  json::array before{user}, after{user, calls};
  for (int i = 0; i < 3; ++i) after.push_back(json::object{{"role", "tool"}, {"tool_call_id", std::string(1, static_cast<char>('a' + i))}, {"content", results[i]}});
  json::array last = after;
  last.push_back(json::object{{"role", "assistant"}, {"content", answer}});
  last.push_back(json::object{{"role", "user"}, {"content", next}});
  std::vector<std::string> chat;
  int64_t ms = kNovemberMs;
  for (const json::array& messages : {before, after, last}) chat.push_back(json::serialize(json::object{{"timestamp", iso(ms += 1000)}, {"model", "claude-x"}, {"messages", messages}}));
  write_lines(file("chat.jsonl"), chat);
  const json::object expected = report_of(file("chat.jsonl"));

  const auto line = [&](const char* type, const std::string& uuid, const std::string& parent, json::object message, int second) {
    return json::serialize(json::object{{"type", type}, {"uuid", uuid}, {"parentUuid", parent.empty() ? json::value() : json::value(parent)}, {"sessionId", "s"},
                                        {"timestamp", iso(kNovemberMs + second * 1000)}, {"message", std::move(message)}});
  };
  const auto said = [&](const std::string& uuid, const std::string& parent, const char* id, json::object block, int second) {
    return line("assistant", uuid, parent, {{"id", id}, {"model", "claude-x"}, {"role", "assistant"}, {"content", json::array{std::move(block)}}}, second);
  };
  const auto use = [](const char* id) { return json::object{{"type", "tool_use"}, {"id", id}, {"name", "read"}, {"input", json::object{{"path", "x"}}}}; };
  const auto result = [&](int i, const std::string& parent, int second) {
    const std::string id(1, static_cast<char>('a' + i));
    return line("user", "r" + id, parent, {{"role", "user"}, {"content", json::array{json::object{{"type", "tool_result"}, {"tool_use_id", id}, {"content", results[i]}}}}}, second);
  };
  const std::string first = line("user", "u", "", {{"role", "user"}, {"content", ask}}, 1);
  const std::string thinking = said("t", "u", "m1", {{"type", "thinking"}, {"thinking", thought}}, 2);
  const auto rest = [&](const std::string& parent) {
    return std::vector<std::string>{said("f", parent, "m2", {{"type", "text"}, {"text", answer}}, 3), line("user", "n", "f", {{"role", "user"}, {"content", next}}, 3),
                                    said("g", "n", "m3", {{"type", "text"}, {"text", "done"}}, 4)};
  };
  // Calls one behind the other, then results, each under its call; or calls and results in turn; or one behind the other, as it was once. A line
  // that some gateways bring twice says nothing new.
  const std::vector<std::vector<std::string>> orders = {
      {first, thinking, said("ca", "t", "m1", use("a"), 2), said("cb", "ca", "m1", use("b"), 2), said("cc", "cb", "m1", use("c"), 2), result(0, "ca", 2), result(1, "cb", 2), result(2, "cc", 2)},
      {first, thinking, said("ca", "t", "m1", use("a"), 2), result(0, "ca", 2), said("cb", "ra", "m1", use("b"), 2), result(1, "cb", 2), said("cc", "rb", "m1", use("c"), 2), result(2, "cc", 2)},
      {first, thinking, said("ca", "t", "m1", use("a"), 2), said("cb", "ca", "m1", use("b"), 2), said("cc", "cb", "m1", use("c"), 2), result(0, "cc", 2), result(1, "ra", 2), result(2, "rb", 2)},
      {first, thinking, said("t2", "t", "m1", {{"type", "thinking"}, {"thinking", thought}}, 2), said("ca", "t2", "m1", use("a"), 2), said("c2", "ca", "m1", use("a"), 2), said("cb", "c2", "m1", use("b"), 2),
       said("cc", "cb", "m1", use("c"), 2), result(2, "cc", 2), result(0, "ca", 2), result(1, "cb", 2)}};
  for (size_t i = 0; i < orders.size(); ++i) {
    std::vector<std::string> lines = orders[i];
    const std::vector<std::string> end = rest(i == 3 ? "rb" : "rc");
    lines.insert(lines.end(), end.begin(), end.end());
    write_lines(file("session.jsonl"), lines);
    const json::object found = report_of(file("session.jsonl"));
    EXPECT_EQ(found.at("input").at("requests").to_number<int>(), 3) << i;
    EXPECT_EQ(found.at("tokens").at("input"), expected.at("tokens").at("input")) << i;
    EXPECT_EQ(json::serialize(found.at("reuse")), json::serialize(expected.at("reuse"))) << i;
  }
}

// Resumed and forked sessions hold what went before, calls and all; subagents bear the session that they were started from.
TEST_F(LogFormats, CopiesOfACallAreOneAndSubagentsTheirOwn) {
  const auto lines = [&](const std::string& session, const std::string& agent, const std::string& id, const char* model) {
    const auto line = [&](json::object more) {
      more["sessionId"] = session;
      more["timestamp"] = "2026-11-01T00:00:00Z";
      if (!agent.empty()) more["agentId"] = agent;
      return json::serialize(more);
    };
    return std::vector<std::string>{
        line({{"type", "user"}, {"uuid", "u"}, {"parentUuid", nullptr}, {"message", json::object{{"role", "user"}, {"content", "hello"}}}}),
        line({{"type", "assistant"}, {"uuid", "a"}, {"parentUuid", "u"}, {"requestId", "req"},
              {"message", json::object{{"id", id}, {"model", model}, {"role", "assistant"}, {"content", json::array{json::object{{"type", "text"}, {"text", "hi"}}}}}}})};
  };
  write_lines(file("1.jsonl"), lines("one", "", "msg", "claude-x"));
  write_lines(file("2.jsonl"), lines("two", "", "msg", "claude-x"));   // the same call
  write_lines(file("3.jsonl"), lines("one", "x", "msg2", "claude-x"));  // a subagent's
  write_lines(file("4.jsonl"), lines("four", "", "msg3", "<synthetic>"));  // nobody's
  const auto found = audit({file("1.jsonl"), file("2.jsonl"), file("3.jsonl"), file("4.jsonl")});
  ASSERT_NE(found->trace(), nullptr);
  ASSERT_EQ(found->trace()->requests.size(), 2u);
  EXPECT_NE(found->trace()->requests[0].session, found->trace()->requests[1].session);
  EXPECT_EQ(found->input().skipped[static_cast<size_t>(Skip::kCopy)], 1u);
  EXPECT_EQ(found->input().records_by_format[static_cast<size_t>(LogFormat::kClaudeCode)], 2u);
  EXPECT_EQ(found->input().num_incomplete, 2u);
}

TEST_F(LogFormats, ForkedSessionsOfCodexBeginWithCopies) {
  const auto requests_of = [&](const std::string& id) {
    for (const char* name : {"one", "two"}) {
      std::vector<std::string> lines;
      const auto line = [&](const char* type, json::object payload) {
        lines.push_back(json::serialize(json::object{{"timestamp", iso(kNovemberMs + (name[0] == 't' ? 60'000 : 0))}, {"type", type}, {"payload", std::move(payload)}}));
      };
      line("session_meta", {{"id", name}});
      for (int turn = 0; turn < 2; ++turn) {
        line("response_item", {{"type", "message"}, {"role", "user"}, {"content", json::array{json::object{{"type", "input_text"}, {"text", "go on"}}}}});
        line("response_item", {{"type", "function_call"}, {"call_id", id + std::to_string(turn)}, {"name", "shell"}, {"arguments", "{}"}});
        line("response_item", {{"type", "function_call_output"}, {"call_id", id + std::to_string(turn)}, {"output", "done"}});
      }
      write_lines(file(std::string(name) + ".jsonl"), lines);
    }
    return audit({file("one.jsonl"), file("two.jsonl")})->trace()->requests.size();
  };
  EXPECT_EQ(requests_of("call_0f3c2a9d8b7e6f5a4c3b"), 2u);
  EXPECT_EQ(requests_of("call_"), 4u) << "counted from 0 in each session";
}

// What the provider ran within an answer does not begin another one, and what no model was shown is in no prompt.
TEST_F(LogFormats, SearchesWithinAnAnswerOfCodexAreNoCalls) {
  const auto log = [&](bool search, bool snapshot) {
    std::vector<std::string> lines;
    int second = 0;
    const auto line = [&](const char* type, json::object payload) {
      lines.push_back(json::serialize(json::object{{"timestamp", iso(kNovemberMs + ++second * 1000)}, {"type", type}, {"payload", std::move(payload)}}));
    };
    const auto text = [](const char* role, const char* type, const char* words) {
      return json::object{{"type", "message"}, {"role", role}, {"content", json::array{json::object{{"type", type}, {"text", words}}}}};
    };
    line("session_meta", {{"id", "s"}});
    if (snapshot) line("response_item", {{"type", "ghost_snapshot"}, {"ghost_commit", json::object{{"id", std::string(4000, 'f')}}}});
    line("response_item", text("user", "input_text", "what is new?"));
    line("response_item", {{"type", "reasoning"}, {"summary", json::array{json::object{{"type", "summary_text"}, {"text", "search"}}}}});
    if (search) line("response_item", {{"type", "web_search_call"}, {"status", "completed"}, {"action", json::object{{"type", "search"}, {"query", "news"}}}});
    line("response_item", text("assistant", "output_text", "nothing"));
    line("response_item", text("user", "input_text", "and now?"));
    line("response_item", text("assistant", "output_text", "nothing still"));
    write_lines(file("rollout.jsonl"), lines);
    return report_of(file("rollout.jsonl"));
  };
  const json::object plain = log(false, false), noted = log(false, true), searched = log(true, true);
  EXPECT_EQ(plain.at("input").at("requests").to_number<int>(), 2);
  EXPECT_EQ(noted.at("tokens"), plain.at("tokens"));
  EXPECT_EQ(searched.at("input").at("requests").to_number<int>(), 2);
  EXPECT_GT(searched.at("tokens").at("input").to_number<int>(), plain.at("tokens").at("input").to_number<int>());
}

// What tracing tools write around a call repeats its messages and sums its counts; what a gateway had in a cache of answers no model saw.
TEST_F(LogFormats, WhatIsNoCallIsNotCounted) {
  const std::vector<Request> all = requests(talks(false));
  std::vector<std::string> calls, around;
  for (const Request& r : all) {
    json::object generation{{"id", "g"}, {"traceId", "t"}, {"type", "GENERATION"}, {"startTime", iso(r.ms)}, {"model", r.body.at("model")}, {"input", r.body},
                            {"usageDetails", json::object{{"input", r.input - r.cached}, {"input_cached_tokens", r.cached}, {"output", r.output}}}};
    calls.push_back(json::serialize(generation));
    around.push_back(calls.back());
    for (const char* type : {"SPAN", "AGENT", "CHAIN", "TOOL"}) {
      generation["type"] = type;
      around.push_back(json::serialize(generation));
    }
    json::object enriched{{"trace_id", "t"}, {"type", "SPAN"}, {"start_time", iso(r.ms)}, {"input", json::serialize(r.body)}};
    around.push_back(json::serialize(enriched));
    json::object span = otel(r);
    json::array& attributes = span["resourceSpans"].as_array()[0].as_object()["scopeSpans"].as_array()[0].as_object()["spans"].as_array()[0].as_object()["attributes"].as_array();
    attributes.push_back(otel_attribute("gen_ai.operation.name", {{"stringValue", "invoke_agent"}}));
    around.push_back(json::serialize(span));
    for (const json::value& hit : {json::value(true), json::value("True")}) {
      json::object cached = kWriters[3].second(r);
      cached["cache_hit"] = hit;
      around.push_back(json::serialize(cached));
    }
  }
  write_lines(file("calls.jsonl"), calls);
  write_lines(file("around.jsonl"), around);
  const json::object found = report_of(file("around.jsonl"));
  EXPECT_EQ(figures(found), figures(report_of(file("calls.jsonl"))));
  EXPECT_EQ(found.at("input").at("skipped").at(skip_reason(Skip::kNoCall)).to_number<size_t>(), all.size() * 8);
  json::object missed = kWriters[3].second(all[0]);
  missed["cache_hit"] = "False";
  write_lines(file("missed.jsonl"), {json::serialize(missed)});
  EXPECT_EQ(report_of(file("missed.jsonl")).at("input").at("requests").to_number<int>(), 1);
}

// What was refused cost nothing, and what is tried again finds no cache. A client that leaves, and a failure whose tokens were counted, came to a model.
TEST_F(LogFormats, RequestsThatFailedAreNoCalls) {
  const Request r = requests(talks(false)).front();
  const std::string body = json::serialize(r.body);
  const auto counted = [&](json::object line) {
    write_lines(file("one.jsonl"), {json::serialize(line)});
    const auto found = audit({file("one.jsonl")});
    const uint64_t skipped = found->input().skipped[static_cast<size_t>(Skip::kNoCall)];
    EXPECT_EQ(skipped, found->trace() == nullptr ? 1u : 0u) << json::serialize(line);
    return skipped == 0;
  };
  const auto own = [&](int status, int tokens) {
    return json::object{{"time", iso(r.ms)}, {"endpoint", "chat"}, {"model", "m"}, {"status", status}, {"prompt_tokens", tokens}, {"completion_tokens", 0}, {"e2e_ms", 1.5}, {"request", body}};
  };
  EXPECT_TRUE(counted(own(200, 900)));
  EXPECT_FALSE(counted(own(400, 0)));
  EXPECT_TRUE(counted(own(499, 0)));
  EXPECT_TRUE(counted(own(500, 900)));
  const auto nginx = [&](const char* status) { return json::object{{"time_iso8601", iso(r.ms)}, {"status", status}, {"request_body", body}}; };
  EXPECT_TRUE(counted(nginx("200")));
  EXPECT_FALSE(counted(nginx("429")));
  EXPECT_FALSE(counted(nginx("502")));
  json::object litellm = kWriters[3].second(r);
  litellm["usage"] = nullptr;
  for (const char* key : {"prompt_tokens", "completion_tokens"}) litellm[key] = 0;
  litellm["status"] = "failure";
  EXPECT_FALSE(counted(litellm));
  litellm["status"] = "success";
  EXPECT_TRUE(counted(litellm));
  EXPECT_FALSE(counted({{"request_id", "x"}, {"request_created_at", iso(r.ms)}, {"request_body", body}, {"response_status", 401}, {"response_body", R"({"error":{}})"}}));
  json::object entry = har_entry(r);
  EXPECT_TRUE(counted({{"log", json::object{{"entries", json::array{entry}}}}}));
  entry["response"] = json::object{{"status", 429}, {"content", json::object{{"text", "{}"}}}};
  EXPECT_FALSE(counted({{"log", json::object{{"entries", json::array{entry}}}}}));
}

// Columns of a tool that leave out what a cache had do not hide what the provider's own answer says of it.
TEST_F(LogFormats, AnAnswersCountsStandAboveColumnsWithoutACache) {
  const std::vector<Request> all = requests(talks(false));
  std::vector<std::string> lines;
  for (const Request& r : all) {
    lines.push_back(json::serialize(json::object{{"request_id", "x"}, {"request_created_at", iso(r.ms)}, {"request_body", json::serialize(r.body)}, {"prompt_tokens", r.input - r.cached},
                                                 {"completion_tokens", r.output}, {"response_body", json::serialize(json::object{{"usage", usage(r)}})}}));
  }
  write_lines(file("helicone.jsonl"), lines);
  EXPECT_EQ(figures(report_of(file("helicone.jsonl"))), figures(report_of(write(all, kWriters[0].second, file("chat.jsonl")))));
}

// No sum of a log's counts is more than a number holds, whatever stands there.
TEST_F(LogFormats, CountsThatNoRequestHasAreBounded) {
  const char* huge = "9223372036854775807";
  std::vector<std::string> lines;
  for (int i = 0; i < 3; ++i) {
    lines.push_back(fmt::format(R"({{"timestamp":{0},"input_length":{0},"output_length":{0}}})", huge));
    lines.push_back(fmt::format(R"({{"ts":1,"usage":{{"input_tokens":{0},"cache_read_input_tokens":{0},"cache_creation_input_tokens":{0},"output_tokens":{0}}},"input_length":5}})", huge));
    lines.push_back(R"({"ts":1,"usage":{"prompt_tokens":-7,"completion_tokens":-7},"input_length":5})");
  }
  write_lines(file("lengths.jsonl"), lines);
  const json::object found = report_of(file("lengths.jsonl"));
  EXPECT_EQ(found.at("tokens").at("input").to_number<int64_t>(), 6 * kMaxLoggedTokens + 3 * 5);
  EXPECT_EQ(found.at("tokens").at("output").to_number<int64_t>(), 6 * kMaxLoggedTokens);
  for (std::string& line : lines) line = fmt::format(R"({{"timestamp":{0},"hash_ids":[1,2],"block_size":16,"input_length":{0},"output_length":{0}}})", huge);
  write_lines(file("hashes.jsonl"), lines);
  EXPECT_EQ(report_of(file("hashes.jsonl")).at("reuse").at("unlimited").at("hit_tokens").to_number<int64_t>(), 8 * 32);
}

TEST_F(LogFormats, CompressedArraysDocumentsAndMixedLinesAreTold) {
  const std::vector<Request> all = requests(talks(false));
  const std::string plain = write(all, kWriters[0].second, file("plain.jsonl"));
  const std::string expected = figures(report_of(plain));
  std::string text = read_file(plain);
  // gzip in two members, Zstandard in two frames, each cut inside a line.
  const size_t half = text.size() / 2;
  {
    std::ofstream out(file("two.gz"), std::ios::binary);
    for (const std::string_view part : {std::string_view(text).substr(0, half), std::string_view(text).substr(half)}) {
      z_stream z{};
      ASSERT_EQ(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
      std::string packed(part.size() + 1000, '\0');
      z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
      z.avail_in = static_cast<uInt>(part.size());
      z.next_out = reinterpret_cast<Bytef*>(packed.data());
      z.avail_out = static_cast<uInt>(packed.size());
      ASSERT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
      out.write(packed.data(), static_cast<std::streamsize>(z.total_out));
      deflateEnd(&z);
    }
  }
  {
    std::ofstream out(file("two.zst"), std::ios::binary);
    for (const std::string_view part : {std::string_view(text).substr(0, half), std::string_view(text).substr(half)}) {
      std::string packed(ZSTD_compressBound(part.size()), '\0');
      packed.resize(ZSTD_compress(packed.data(), packed.size(), part.data(), part.size(), 3));
      out << packed;
    }
  }
  json::array entries, page;
  std::string pretty = "[\n", mixed;
  for (size_t i = 0; i < all.size(); ++i) {
    pretty += (i > 0 ? ",\n  " : "  ") + json::serialize(with_time(all[i].body, all[i])) + "\n";
    mixed += json::serialize(kWriters[i % std::size(kWriters)].second(all[i])) + "\n";
    entries.push_back(har_entry(all[i]));
    page.push_back(with_time(all[i].body, all[i]));
  }
  std::ofstream(file("page.json")) << json::serialize(json::object{{"data", std::move(page)}, {"meta", json::object{{"page", 1}}}});
  std::ofstream(file("array.json")) << pretty << "]\n";
  std::ofstream(file("mixed.log")) << mixed;
  std::string har = json::serialize(json::object{{"log", json::object{{"version", "1.2"}, {"entries", entries}}}});
  har.insert(1, "\n ");
  std::ofstream(file("browser.har")) << har;
  for (const char* name : {"two.gz", "two.zst", "array.json", "page.json", "mixed.log", "browser.har"}) EXPECT_EQ(figures(report_of(file(name))), expected) << name;
}

TEST_F(LogFormats, CompletionsAndTokenIds) {
  Rng rng(3);
  const std::string shared = words(rng, 1024);
  std::vector<std::string> lines;
  for (int i = 0; i < 10; ++i) lines.push_back(json::serialize(json::object{{"prompt", shared + words(rng, 200)}, {"created", 1'793'491'200 + i}}));
  write_lines(file("completions.jsonl"), lines);
  const json::object found = report_of(file("completions.jsonl"));
  EXPECT_EQ(found.at("tokens").at("input").to_number<int64_t>(), 10 * 1224);
  EXPECT_EQ(found.at("reuse").at("unlimited").at("hit_tokens").to_number<int64_t>(), 9 * 1024);
  EXPECT_EQ(found.at("reuse").at("by_retention").at("5m").at("hit_tokens").to_number<int64_t>(), 9 * 1024);
}

// A completion whose prompt is the tokens of a conversation is that conversation, but for what only turns tell.
TEST_F(LogFormats, TokenIdsOfAConversationGiveItsFigures) {
  const std::vector<Request> all = requests(talks(false));
  const json::object chat = report_of(write(all, kWriters[0].second, file("chat.jsonl")));
  std::vector<std::string> lines;
  for (const Request& r : all) {
    json::array ids;
    for (const TokenId id : tokens(r.body)) ids.push_back(id);
    lines.push_back(json::serialize(with_time({{"model", r.body.at("model")}, {"prompt", std::move(ids)}}, r)));
  }
  write_lines(file("ids.jsonl"), lines);
  const json::object found = report_of(file("ids.jsonl"));
  EXPECT_EQ(found.at("input").at("by_format").at("completions").to_number<size_t>(), all.size());
  for (const char* key : {"tokens", "reuse", "block_sizes", "per_tenant", "timeline"}) EXPECT_EQ(json::serialize(found.at(key)), json::serialize(chat.at(key))) << key;
}

// Servers' hashes of full blocks, each over all before it: known answers from a set of those that were there.
TEST_F(LogFormats, BlockHashesOfServers) {
  struct Style {
    const char* hashes;
    const char* block;
    const char* length;
    int block_tokens;
    bool text;  // vLLM's are bytes, written in hexadecimal; SGLang's are numbers
  };
  for (const Style& style : {Style{"block_hashes", "block_size", "prompt_tokens", 16, true}, Style{"hashes", "page_size", "input_tokens", 64, false}}) {
    Rng rng(11);
    std::vector<std::vector<uint64_t>> prompts;
    std::vector<std::string> lines;
    std::map<uint64_t, int64_t> last_ms;
    int64_t ms = kNovemberMs, input = 0, hit = 0, hit_5m = 0;
    for (int i = 0; i < 200; ++i) {
      std::vector<uint64_t> hashes = prompts.empty() || rng.below(5) == 0 ? std::vector<uint64_t>() : prompts[rng.below(prompts.size())];
      if (!hashes.empty()) hashes.resize(1 + rng.below(hashes.size()));
      for (uint64_t grow = rng.below(20); grow > 0; --grow) hashes.push_back((uint64_t{rng.next_u32()} << 32 | rng.next_u32()) >> 1);
      prompts.push_back(hashes);
      ms += static_cast<int64_t>(rng.below(120'000));
      const int64_t length = static_cast<int64_t>(hashes.size()) * style.block_tokens + static_cast<int64_t>(rng.below(static_cast<uint64_t>(style.block_tokens)));
      input += length;
      bool there = true, there_5m = true;
      for (const uint64_t hash : hashes) {
        const auto at = last_ms.find(hash);
        there = there && at != last_ms.end();
        there_5m = there_5m && there && ms - at->second <= 300'000;
        hit += there ? style.block_tokens : 0;
        hit_5m += there_5m ? style.block_tokens : 0;
      }
      json::array written;
      for (const uint64_t hash : hashes) {
        last_ms[hash] = ms;
        written.push_back(style.text ? json::value(fmt::format("{:064x}", hash)) : json::value(hash));
      }
      lines.push_back(json::serialize(json::object{{"timestamp", static_cast<double>(ms) / 1000}, {"request_id", i}, {style.block, style.block_tokens}, {style.hashes, std::move(written)}, {style.length, length}}));
    }
    write_lines(file("hashes.jsonl"), lines);
    const json::object found = report_of(file("hashes.jsonl"));
    EXPECT_EQ(found.at("input").at("by_format").at("hash-trace").to_number<int64_t>(), 200);
    EXPECT_EQ(found.at("reuse").at("block_tokens").to_number<int64_t>(), style.block_tokens);
    EXPECT_EQ(found.at("tokens").at("input").to_number<int64_t>(), input) << style.hashes;
    EXPECT_EQ(found.at("reuse").at("unlimited").at("hit_tokens").to_number<int64_t>(), hit) << style.hashes;
    EXPECT_EQ(found.at("reuse").at("by_retention").at("5m").at("hit_tokens").to_number<int64_t>(), hit_5m) << style.hashes;
    EXPECT_LT(hit_5m, hit);
    EXPECT_GT(hit_5m, 0);
  }
}

// A first line that is no JSON hides nothing behind it, and the first elements of an array are not taken for one.
TEST_F(LogFormats, ADamagedFirstLineHidesNothing) {
  const std::vector<Request> all = requests(talks(false));
  const std::string lines = read_file(write(all, kWriters[0].second, file("plain.jsonl")));
  for (const std::string& damage : {std::string("{\"messages\": ["), std::string(5000, '['), std::string("[{\"messages\": [{"), std::string("[2026-11-01] begin"), std::string("\0{", 2)}) {
    std::ofstream(file("damaged.jsonl"), std::ios::binary) << damage << "\n" << lines;
    EXPECT_EQ(report_of(file("damaged.jsonl")).at("input").at("requests").to_number<size_t>(), all.size()) << damage.substr(0, 20);
  }
  const auto element = [&](size_t i) { return json::serialize(with_time(all[i].body, all[i])); };
  for (const std::string& first : {element(0), element(0) + ", " + element(1)}) {
    std::ofstream(file("array.json")) << "[" << first << ",\n" << element(2) << "\n]\n";
    EXPECT_EQ(report_of(file("array.json")).at("input").at("requests").to_number<size_t>(), first == element(0) ? 2u : 3u);
  }
}

// What clients may write and no client should: none of it is anybody's prompt, none of it a crash.
TEST_F(LogFormats, SpansWithHolesInThem) {
  std::vector<std::string> lines;
  for (const char* attributes : {R"([{"key":"gen_ai.system","value":{"stringValue":"x"}},{"key":"gen_ai.prompt.0.role","value":{"stringValue":"user"}},{"key":"gen_ai.prompt.0.content","value":{"stringValue":"[]"}}])",
                                 R"([{"key":"gen_ai.system"},{"value":3},null,7])", R"([{"key":"gen_ai.request.model","value":{"stringValue":"m"}},{"key":"llm.request.functions.0.name","value":{"stringValue":"f"}}])"}) {
    for (const char* events : {"[]", "[null,{\"name\":\"gen_ai..message\"},{\"name\":\"gen_ai.content.prompt\",\"attributes\":[]},{\"name\":\"gen_ai.message\"}]"}) {
      lines.push_back(fmt::format(R"({{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"attributes":{},"events":{}}}]}}]}}]}})", attributes, events));
    }
  }
  write_lines(file("holes.jsonl"), lines);
  const auto found = audit({file("holes.jsonl")});
  EXPECT_EQ(found->input().num_values, 6u);
}

TEST_F(LogFormats, StreamedAnswersOfOtherProtocolsCountToo) {
  struct Answer {
    const char* stream;
    int64_t input, cached, output;
  };
  const Answer answers[] = {
      {"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3,\"cache_read_input_tokens\":40,\"cache_creation_input_tokens\":7,\"output_tokens\":1}}}\n\n"
       "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":9}}\n\n",
       50, 40, 9},
      {"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":50,\"input_tokens_details\":{\"cached_tokens\":40},\"output_tokens\":9}}}\n\n", 50, 40, 9},
      {"data: {\"usage\": broken\n\ndata: [DONE]\n\n", -1, -1, -1},  // not 0: nobody counted
  };
  for (const Answer& answer : answers) {
    write_lines(file("stream.jsonl"), {json::serialize(json::object{{"request_body", R"({"model":"m","messages":[{"role":"user","content":"hi"}]})"}, {"response_body", answer.stream}})});
    const json::object found = report_of(file("stream.jsonl"));
    const auto number = [](int64_t value) { return value < 0 ? json::value(nullptr) : json::value(value); };
    EXPECT_EQ(found.at("tokens").at("logged").at("input"), number(answer.input)) << answer.stream;
    EXPECT_EQ(found.at("tokens").at("logged").at("cached"), number(answer.cached)) << answer.stream;
    EXPECT_EQ(found.at("tokens").at("output"), number(answer.output)) << answer.stream;
  }
}

// A format that was asked for is that of every line, whatever it looks like.
TEST_F(LogFormats, AForcedFormatIsReadWhereDetectionSaysAnother) {
  const std::vector<Request> all = requests(talks(false));
  const auto forced = [&](Writer writer, LogFormat format) {
    AuditOptions options;
    options.parser.format = format;
    return audit({write(all, writer, file("forced.jsonl"))}, options);
  };
  const auto by_format = [&](const Audit& audit) { return json::serialize(report(audit).at("input").at("by_format")); };
  const auto with_call_type = [](const Request& r) {
    json::object out = with_time(r.body, r);
    out["call_type"] = "acompletion";
    return out;
  };
  const std::string expected = figures(report_of(write(all, kWriters[0].second, file("chat.jsonl"))));
  EXPECT_EQ(by_format(*audit({write(all, with_call_type, file("detected.jsonl"))})), json::serialize(json::object{{"litellm", all.size()}}));
  const auto chat = forced(with_call_type, LogFormat::kChat);
  EXPECT_EQ(by_format(*chat), json::serialize(json::object{{"chat", all.size()}}));
  EXPECT_EQ(figures(report(*chat)), expected);
  // What surrounds a body is any object; what has one in its own right may be taken for either.
  const auto wrapped = [](const Request& r) { return json::object{{"endpoint", "x"}, {"e2e_ms", 3}, {"time", iso(r.ms)}, {"usage", usage(r)}, {"request", r.body}}; };
  const auto body_log = forced(wrapped, LogFormat::kBodyLog);
  EXPECT_EQ(by_format(*body_log), json::serialize(json::object{{"body-log", all.size()}}));
  EXPECT_EQ(figures(report(*body_log)), expected);
  // A page of an API holds records of that format too.
  json::array page;
  for (const Request& r : all) page.push_back(with_call_type(r));
  std::ofstream(file("page.json")) << json::serialize(json::object{{"data", std::move(page)}});
  AuditOptions options;
  options.parser.format = LogFormat::kChat;
  EXPECT_EQ(figures(report(*audit({file("page.json")}, options))), expected);
  const auto lengths = forced(with_call_type, LogFormat::kLengths);
  EXPECT_EQ(lengths->lengths().num_requests(), static_cast<int64_t>(all.size()));
}

TEST_F(LogFormats, AForcedFormatThatTheLogDoesNotHaveSaysSo) {
  const std::vector<Request> all = requests(talks(false));
  const std::string chat = write(all, kWriters[0].second, file("chat.jsonl"));
  int num_refused = 0;
  for (int i = 0; i < kNumLogFormats; ++i) {
    const LogFormat format = static_cast<LogFormat>(i);
    // These find what they need in a chat body with token counts.
    if (format == LogFormat::kChat || format == LogFormat::kLengths || format == LogFormat::kMessages || format == LogFormat::kLiteLlm) continue;
    AuditOptions options;
    options.parser.format = format;
    const auto found = audit({chat}, options);
    if (found->trace() != nullptr) continue;  // gateways' wrappers may lie around the messages themselves
    const auto made = make_report(*found, {});
    ASSERT_FALSE(made) << format_name(format);
    EXPECT_NE(made.error().message.find(fmt::format("{} not in the format that was asked for", all.size())), std::string::npos) << format_name(format) << ": " << made.error().message;
    num_refused += 1;
  }
  EXPECT_GE(num_refused, 7);
}

// Calls visit with every copy of a value in which one field, at any depth, has another name or is null.
void without_each_field(const json::value& value, const std::function<void(const json::value&)>& visit) {
  if (const auto* list = value.if_array()) {
    for (size_t i = 0; i < list->size(); ++i) {
      without_each_field((*list)[i], [&](const json::value& element) {
        json::array copy = *list;
        copy[i] = element;
        visit(copy);
      });
    }
  }
  if (const auto* object = value.if_object()) {
    for (const auto& [key, field] : *object) {
      json::object copy = *object;
      copy.erase(key);
      copy["another"] = field;
      visit(copy);
      copy = *object;
      copy[key] = nullptr;
      visit(copy);
      without_each_field(field, [&, name = std::string(key)](const json::value& changed) {
        json::object deep = *object;
        deep[name] = changed;
        visit(deep);
      });
    }
  }
}

// Forced into any format, nothing that its shape promises can be relied on.
TEST(LogParser, AForcedFormatMayLackAnyField) {
  const std::vector<Request> all = requests(talks(true));
  std::vector<json::value> lines;
  for (const auto& [name, writer] : kWriters) lines.push_back(writer(all[0]));
  lines.push_back(json::object{{"log", json::object{{"entries", json::array{har_entry(all[0])}}}}});
  size_t num_parsed = 0;
  for (int i = 0; i < kNumLogFormats; ++i) {
    LogParser parser({.format = static_cast<LogFormat>(i)});
    for (const json::value& line : lines) {
      without_each_field(line, [&](const json::value& changed) {
        std::string text = json::serialize(changed);
        const size_t size = text.size();
        text.append(simdjson::SIMDJSON_PADDING, ' ');
        std::vector<LogRecord> records;
        num_parsed += !parser.parse(std::string_view(text).substr(0, size), records);
      });
    }
  }
  EXPECT_GT(num_parsed, 100u);
}

// A session whose first lines are of kinds that nobody knows yet is one when it is called one.
TEST_F(LogFormats, AForcedSessionFileNeedsNoKnownFirstLines) {
  std::vector<std::string> lines(25, R"({"type":"something-new"})");
  lines.push_back(R"({"type":"user","uuid":"a","parentUuid":null,"sessionId":"s","cwd":"/one","at":{"time":"2026-11-01T00:00:07Z"},"timestamp":"2026-11-01T00:00:00Z","message":{"role":"user","content":"hello"}})");
  lines.push_back(R"({"type":"assistant","uuid":"b","parentUuid":"a","sessionId":"s","cwd":"/one","timestamp":"2026-11-01T00:00:01Z","message":{"id":"m","model":"x","role":"assistant","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":9,"output_tokens":2}}})");
  write_lines(file("session.jsonl"), lines);
  EXPECT_EQ(audit({file("session.jsonl")})->trace(), nullptr);
  AuditOptions options;
  options.parser = {.format = LogFormat::kClaudeCode, .time_field = "at.time", .tenant_field = "cwd"};
  const auto found = audit({file("session.jsonl")}, options);
  ASSERT_NE(found->trace(), nullptr);
  ASSERT_EQ(found->trace()->requests.size(), 1u);
  EXPECT_EQ(found->trace()->requests[0].time_us, (kNovemberMs + 7000) * 1000);
  EXPECT_EQ(found->trace()->tenants.name(found->trace()->requests[0].tenant), "/one");
}

// Times and tenants where no tool writes them; in every kind of line, "ts" and "user" say another thing.
TEST_F(LogFormats, NamedFieldsTellTimeAndTenant) {
  Rng rng(8);
  const std::string prompt = words(rng, 1280);
  const auto log = [&](const auto& line) {
    std::vector<std::string> lines;
    for (int i = 0; i < 3; ++i) {  // 400 s apart in one field, 200 s in the other; the first and the last are one tenant's
      lines.push_back(json::serialize(line(kNovemberMs + i * 200'000, kNovemberMs + i * 400'000, i == 1 ? "b" : "a")));
    }
    write_lines(file("log.jsonl"), lines);
    return file("log.jsonl");
  };
  const auto check = [&](const std::string& path, const char* time_field, const char* tenant_field) {
    AuditOptions options;
    const json::object plain = report_of(path, options);
    options.parser.time_field = time_field;
    options.parser.tenant_field = tenant_field;
    const json::object named = report_of(path, options);
    EXPECT_EQ(plain.at("reuse").at("by_retention").at("5m").at("hit_tokens").to_number<int64_t>(), 2 * 1280) << path;
    EXPECT_EQ(plain.at("per_tenant").at("tenants").to_number<int>(), 1);
    EXPECT_EQ(named.at("reuse").at("by_retention").at("5m").at("hit_tokens").to_number<int64_t>(), 0);
    EXPECT_EQ(named.at("reuse").at("by_retention").at("1h").at("hit_tokens").to_number<int64_t>(), 2 * 1280);
    EXPECT_EQ(named.at("per_tenant").at("tenants").to_number<int>(), 2);
    EXPECT_EQ(named.at("per_tenant").at("unlimited").at("hit_tokens").to_number<int64_t>(), 1280);
    EXPECT_EQ(named.at("input").at("span_seconds").to_number<double>(), 800);
    // A path that is nowhere gives no time and no tenant, and says how many.
    options.parser.time_field = "no.where";
    const json::object nowhere = report_of(path, options);
    EXPECT_EQ(nowhere.at("input").at("without_time").to_number<int>(), 3);
    EXPECT_FALSE(nowhere.at("input").at("has_times").as_bool());
  };
  const auto body = [&] { return json::object{{"model", "m"}, {"prompt", prompt}}; };
  check(log([&](int64_t ts, int64_t when, const char* who) {
          json::object line = body();
          line["ts"] = iso(ts);
          line["user"] = "all";
          line["meta"] = json::object{{"when", when}, {"customer", json::object{{"name", who}}}};
          return line;
        }), "meta.when", "meta.customer.name");
  check(log([&](int64_t ts, int64_t when, const char* who) { return json::object{{"ts", iso(ts)}, {"user", "all"}, {"sent", iso(when)}, {"team", who}, {"request_body", json::serialize(body())}}; }), "sent", "team");
  check(log([&](int64_t ts, int64_t when, const char* who) {
          return json::object{{"startedDateTime", iso(ts)}, {"_when", when}, {"_who", who}, {"request", json::object{{"postData", json::object{{"text", json::serialize(body())}}}}}};
        }), "_when", "_who");
  check(log([&](int64_t ts, int64_t when, const char* who) {
          return json::object{{"http_buffered_trace", json::object{{"request", json::object{{"headers_received_time", iso(ts)}, {"body", json::object{{"as_string", json::serialize(body())}}}}}}},
                              {"at", when}, {"who", who}};
        }), "at", "who");
}

TEST_F(LogFormats, NamedFieldsTellTimeAndTenantOfSpans) {
  Rng rng(8);
  const std::string text = words(rng, 1280);
  std::vector<std::string> lines;
  for (int i = 0; i < 2; ++i) {
    json::array attributes{otel_attribute("gen_ai.request.model", {{"stringValue", "m"}}), otel_attribute("user.id", {{"stringValue", "all"}}),
                           otel_attribute("team", {{"stringValue", i == 0 ? "a" : "b"}}), otel_attribute("gen_ai.prompt.0.role", {{"stringValue", "user"}}),
                           otel_attribute("gen_ai.prompt.0.content", {{"stringValue", text}})};
    const json::object span{{"startTimeUnixNano", std::to_string(kNovemberMs) + "000000"}, {"endTimeUnixNano", std::to_string(kNovemberMs + i * 400'000) + "000000"}, {"attributes", std::move(attributes)}};
    lines.push_back(json::serialize(json::object{{"spans", json::array{span}}}));
  }
  write_lines(file("spans.jsonl"), lines);
  AuditOptions options;
  options.parser = {.time_field = "endTimeUnixNano", .tenant_field = "team"};
  EXPECT_EQ(report_of(file("spans.jsonl")).at("input").at("span_seconds").to_number<double>(), 0);
  const json::object named = report_of(file("spans.jsonl"), options);
  EXPECT_EQ(named.at("input").at("span_seconds").to_number<double>(), 400);
  EXPECT_EQ(named.at("per_tenant").at("tenants").to_number<int>(), 2);
}

// Block hashes and prompts cannot be held against each other, nor blocks of two sizes; each is told in its own words.
TEST_F(LogFormats, AnotherKindOfRecordAndAnotherBlockSizeAreTwoMatters) {
  const std::string prompt = R"({"messages":[{"role":"user","content":"hi"}]})", hashes = R"({"hash_ids":[1,2],"input_length":1000})",
                    small = R"({"hashes":[1,2],"page_size":16,"input_length":32})";
  write_lines(file("one.jsonl"), {prompt, hashes, small});
  write_lines(file("two.jsonl"), {hashes, prompt, small, small});
  const auto skipped = [&](const char* name, Skip reason) { return audit({file(name)})->input().skipped[static_cast<size_t>(reason)]; };
  EXPECT_EQ(skipped("one.jsonl", Skip::kOtherKind), 2u);
  EXPECT_EQ(skipped("one.jsonl", Skip::kOtherBlocks), 0u);
  EXPECT_EQ(skipped("two.jsonl", Skip::kOtherKind), 1u);
  EXPECT_EQ(skipped("two.jsonl", Skip::kOtherBlocks), 2u);
  EXPECT_EQ(skip_reason(Skip::kOtherKind).find("block size"), std::string_view::npos);
  // The same where reports are joined.
  ReportOptions options;
  options.shard = true;
  const auto shard = [&](const std::string& line) {
    write_lines(file("shard.jsonl"), {line});
    return report(*audit({file("shard.jsonl")}), options);
  };
  const auto join = [&](const std::string& first, const std::string& second) {
    Audit joined({}, nullptr, nullptr);
    EXPECT_TRUE(add_shard(shard(first), joined));
    const Result<> done = add_shard(shard(second), joined);
    return done ? std::string("joined") : done.error().message;
  };
  EXPECT_EQ(join(hashes, prompt), "a trace of block hashes and one of prompts cannot be joined");
  EXPECT_EQ(join(hashes, small), "traces with blocks of 512 and of 16 tokens cannot be joined");
}

// A block's hash stands for all before it: what is repeated at other places, and which edit broke a prefix, cannot be told from it.
TEST_F(LogFormats, HashesDoNotTellWhatIsRepeatedElsewhere) {
  write_lines(file("hashes.jsonl"), {R"({"hash_ids":[1,2],"input_length":1000,"timestamp":0})", R"({"hash_ids":[1,3],"input_length":1000,"timestamp":400000})"});
  const json::object found = report_of(file("hashes.jsonl"));
  EXPECT_EQ(found.at("repetition").at("prefix_share").to_number<double>(), 512.0 / 2000);
  for (const char* key : {"other_tokens", "other_share"}) EXPECT_TRUE(found.at("repetition").at(key).is_null()) << key;
  EXPECT_TRUE(found.at("breakers").is_null());
  EXPECT_EQ(found.at("input").at("span_seconds").to_number<double>(), 400) << "milliseconds since the beginning";
  const std::string text = summary_text(found);
  EXPECT_NE(text.find("repeated at other places, out of reach  not known"), std::string::npos) << text;
  // Whole seconds of a clock are no milliseconds.
  write_lines(file("clock.jsonl"), {R"({"hash_ids":[1],"input_length":500,"timestamp":1793491200})", R"({"hash_ids":[1],"input_length":500,"timestamp":1793491260})"});
  EXPECT_EQ(report_of(file("clock.jsonl")).at("input").at("span_seconds").to_number<double>(), 60);
}

TEST_F(LogFormats, TimesAreReadAsToolsWriteThem) {
  const int64_t us = kNovemberMs * 1000 + 250'000;
  for (const char* text : {"2026-11-01T00:00:00.25Z", "2026-11-01 00:00:00.250", "2026-11-01T01:00:00.25+01:00", "2026-10-31T19:00:00.25-0500", "1793491200.25", "1793491200250",
                           "1793491200250000", "1793491200250000000"}) {
    EXPECT_EQ(parse_time_us(text), us) << text;
  }
  EXPECT_EQ(parse_time_us("01/Nov/2026:00:00:00 +0000"), kNovemberMs * 1000);
  for (const char* text : {"", "soon", "2026-13-01T00:00:00Z", "2026-11-01T00", "-5", "1e30", "01/Foo/2026:00:00:00 +0000"}) EXPECT_FALSE(parse_time_us(text)) << text;
}

}  // namespace
}  // namespace deepinfer::trace
