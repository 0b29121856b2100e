// Conversations written as the logs of many tools, with known answers: what the audit's tests are held against.
#pragma once

#include <boost/json.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "recipe/fake_tokenizer.h"

namespace deepinfer::trace {
namespace json = boost::json;

// A tokenizer of one token a byte and the control tokens of DeepSeek V4: figures can be counted by hand.
inline recipe::FakeTokenizer byte_tokenizer() {
  std::vector<tokenizer::Tokenizer::AddedToken> added;
  TokenId id = 0;
  for (const char* spelling : {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜", "<｜latest_reminder｜>",
                               "<｜action｜>", "<｜query｜>", "<｜authority｜>", "<｜domain｜>", "<｜title｜>", "<｜read_url｜>"}) {
    added.push_back({id++, spelling, true});
  }
  return recipe::FakeTokenizer(std::move(added), 0, 1);
}

inline std::string words(Rng& rng, size_t bytes) {
  std::string out;
  while (out.size() < bytes) {
    for (uint64_t n = 2 + rng.below(7); n > 0; --n) out += static_cast<char>('a' + rng.below(26));
    out += ' ';
  }
  out.resize(bytes);
  return out;
}

// A turn of a conversation with tools, as Chat Completions has it.
struct Turn {
  std::string user, answer;
  std::string reasoning;                             // of the answer
  std::string tool, arguments, result;               // called before the answer; empty: none
};

struct Talk {
  std::string system;
  json::array tools;  // as Chat Completions has them
  std::vector<Turn> turns;
  std::string session, user, model = "deepseek-v4-flash";
};

inline json::object tool(const std::string& name, const std::string& description) {
  return {{"type", "function"}, {"function", json::object{{"name", name}, {"description", description},
          {"parameters", json::object{{"type", "object"}, {"properties", json::object{{"path", json::object{{"type", "string"}}}}}}}}}};
}

inline json::object tool_call(const std::string& id, const Turn& turn) {
  return {{"id", id}, {"type", "function"}, {"function", json::object{{"name", turn.tool}, {"arguments", turn.arguments}}}};
}

// One request: all before turn `turns`, and that turn's user message; after_tool: and its call and result.
inline json::object chat_body(const Talk& talk, size_t turn, bool after_tool) {
  json::array messages;
  if (!talk.system.empty()) messages.push_back(json::object{{"role", "system"}, {"content", talk.system}});
  for (size_t i = 0; i <= turn; ++i) {
    const Turn& t = talk.turns[i];
    messages.push_back(json::object{{"role", "user"}, {"content", t.user}});
    const bool call = !t.tool.empty() && (i < turn || after_tool);
    const std::string id = "call_" + std::to_string(i);
    if (call) {
      json::object message{{"role", "assistant"}, {"content", nullptr}, {"tool_calls", json::array{tool_call(id, t)}}};
      messages.push_back(std::move(message));
      messages.push_back(json::object{{"role", "tool"}, {"tool_call_id", id}, {"content", t.result}});
    }
    if (i < turn) {
      json::object message{{"role", "assistant"}, {"content", t.answer}};
      if (!t.reasoning.empty()) message["reasoning_content"] = t.reasoning;
      messages.push_back(std::move(message));
    }
  }
  json::object body{{"model", talk.model}, {"messages", std::move(messages)}};
  if (!talk.tools.empty()) body["tools"] = talk.tools;
  return body;
}

inline std::string text_of(const json::value& value) { return std::string(value.get_string()); }

// The same request in the other protocols.
inline json::object messages_body(const json::object& chat) {
  json::object out{{"model", chat.at("model")}, {"max_tokens", 1000}};
  json::array messages;
  for (const json::value& value : chat.at("messages").get_array()) {
    const json::object& m = value.get_object();
    const std::string role = text_of(m.at("role"));
    if (role == "system") {
      out["system"] = m.at("content");
    } else if (role == "tool") {
      messages.push_back(json::object{{"role", "user"}, {"content", json::array{json::object{{"type", "tool_result"}, {"tool_use_id", m.at("tool_call_id")}, {"content", m.at("content")}}}}});
    } else {
      json::array blocks;
      if (m.contains("reasoning_content")) blocks.push_back(json::object{{"type", "thinking"}, {"thinking", m.at("reasoning_content")}, {"signature", "x"}});
      if (m.at("content").is_string()) blocks.push_back(json::object{{"type", "text"}, {"text", m.at("content")}});
      if (m.contains("tool_calls")) {
        for (const json::value& call : m.at("tool_calls").get_array()) {
          const json::object& f = call.at("function").get_object();
          blocks.push_back(json::object{{"type", "tool_use"}, {"id", call.at("id")}, {"name", f.at("name")}, {"input", json::parse(text_of(f.at("arguments")))}});
        }
      }
      messages.push_back(json::object{{"role", role}, {"content", std::move(blocks)}});
    }
  }
  out["messages"] = std::move(messages);
  if (chat.contains("tools")) {
    json::array tools;
    for (const json::value& t : chat.at("tools").get_array()) {
      const json::object& f = t.at("function").get_object();
      tools.push_back(json::object{{"name", f.at("name")}, {"description", f.at("description")}, {"input_schema", f.at("parameters")}});
    }
    out["tools"] = std::move(tools);
  }
  return out;
}

inline json::array response_items(const json::object& chat, std::string& instructions) {
  json::array items;
  for (const json::value& value : chat.at("messages").get_array()) {
    const json::object& m = value.get_object();
    const std::string role = text_of(m.at("role"));
    if (role == "system") {
      instructions = text_of(m.at("content"));
    } else if (role == "tool") {
      items.push_back(json::object{{"type", "function_call_output"}, {"call_id", m.at("tool_call_id")}, {"output", m.at("content")}});
    } else {
      if (m.contains("reasoning_content")) {
        items.push_back(json::object{{"type", "reasoning"}, {"summary", json::array{}}, {"content", json::array{json::object{{"type", "reasoning_text"}, {"text", m.at("reasoning_content")}}}}});
      }
      if (m.at("content").is_string()) {
        items.push_back(json::object{{"type", "message"}, {"role", role},
                                     {"content", json::array{json::object{{"type", role == "user" ? "input_text" : "output_text"}, {"text", m.at("content")}}}}});
      }
      if (m.contains("tool_calls")) {
        for (const json::value& call : m.at("tool_calls").get_array()) {
          const json::object& f = call.at("function").get_object();
          items.push_back(json::object{{"type", "function_call"}, {"call_id", call.at("id")}, {"name", f.at("name")}, {"arguments", f.at("arguments")}});
        }
      }
    }
  }
  return items;
}

inline json::object responses_body(const json::object& chat) {
  std::string instructions;
  json::array items = response_items(chat, instructions);
  json::object out{{"model", chat.at("model")}, {"input", std::move(items)}};
  if (!instructions.empty()) out["instructions"] = instructions;
  if (chat.contains("tools")) {
    json::array tools;
    for (const json::value& t : chat.at("tools").get_array()) {
      json::object f = t.at("function").get_object();
      f["type"] = "function";
      tools.push_back(std::move(f));
    }
    out["tools"] = std::move(tools);
  }
  return out;
}

inline void write_lines(const std::string& path, const std::vector<std::string>& lines) {
  std::ofstream file(path, std::ios::binary);
  for (const std::string& line : lines) file << line << "\n";
}

}  // namespace deepinfer::trace
