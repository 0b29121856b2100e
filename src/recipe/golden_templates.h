// Golden chat templates for tests: tests/golden/chat_templates/MODEL/{chat_template.jinja,templates.json,added_tokens.json}.
#pragma once

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <vector>

#include "read_file.h"
#include "recipe/conversation.h"
#include "recipe/fake_tokenizer.h"

namespace deepinfer::recipe {

inline constexpr const char* kGoldenTemplates[] = {"smollm2-135m-instruct-q4_1", "qwen2.5-coder-0.5b-instruct-q4_k_m",
                                                   "deepseek-r1-distill-qwen-7b"};

inline std::string read_golden(const std::string& model, const std::string& name) {
  return read_file(DI_SOURCE_DIR "/tests/golden/chat_templates/" + model + "/" + name);
}

inline FakeTokenizer golden_tokenizer(const std::string& model) {
  const boost::json::value json = boost::json::parse(read_golden(model, "added_tokens.json"));
  std::vector<tokenizer::Tokenizer::AddedToken> added;
  for (const auto& token : json.at("added_tokens").as_array()) {
    added.push_back({static_cast<TokenId>(token.at("id").as_int64()), std::string(token.at("spelling").as_string()),
                     token.at("special").as_bool()});
  }
  return FakeTokenizer(std::move(added), static_cast<TokenId>(json.at("bos_id").as_int64()),
                       static_cast<TokenId>(json.at("eos_id").as_int64()));
}

inline Conversation golden_conversation(const boost::json::value& test) {
  const auto text = [](const boost::json::object& object, const char* key) {
    const auto* found = object.if_contains(key);
    return found != nullptr && found->is_string() ? std::string(found->as_string()) : std::string();
  };
  Conversation out;
  out.add_generation_prompt = test.at("add_generation_prompt").as_bool();
  for (const auto& item : test.at("messages").as_array()) {
    const auto& object = item.as_object();
    const std::string role = text(object, "role");
    Message message{.content = text(object, "content"), .name = text(object, "name")};
    message.role = role == "system" ? Role::kSystem : role == "user" ? Role::kUser : role == "tool" ? Role::kTool : Role::kAssistant;
    if (const auto* calls = object.if_contains("tool_calls")) {
      for (const auto& call : calls->as_array()) {
        const auto& function = call.at("function").as_object();
        message.tool_calls.push_back({.name = text(function, "name"), .arguments = boost::json::serialize(function.at("arguments"))});
      }
    }
    out.messages.push_back(std::move(message));
  }
  if (const auto* tools = test.as_object().if_contains("tools")) {
    for (const auto& tool : tools->as_array()) {
      ToolDefinition definition;
      definition.raw = tool;
      out.tools.push_back(std::move(definition));
    }
  }
  return out;
}

}  // namespace deepinfer::recipe
