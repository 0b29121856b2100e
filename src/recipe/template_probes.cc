#include "recipe/template_probes.h"

#include <boost/json/object.hpp>

namespace deepinfer::recipe {
namespace {

Message say(Role role, std::string content) { return {.role = role, .content = std::move(content)}; }

ToolDefinition weather_tool() {
  ToolDefinition tool{.name = "get_weather", .description = "The weather at a place"};
  tool.parameters = boost::json::object{
      {"type", "object"}, {"properties", {{"city", {{"type", "string"}, {"description", "a town"}}}}}, {"required", {"city"}}};
  tool.raw = boost::json::object{
      {"type", "function"},
      {"function", {{"name", tool.name}, {"description", tool.description}, {"parameters", tool.parameters}}}};
  return tool;
}

Message weather_call() {
  Message calls = say(Role::kAssistant, "");
  calls.null_content = true;
  calls.tool_calls = {{.id = "call00001", .name = "get_weather", .arguments = R"({"city": "Zürich"})"}};
  return calls;
}

Message weather_result() {
  Message result = say(Role::kTool, "{\"celsius\": 3}");
  result.name = "get_weather";
  result.tool_call_id = "call00001";
  return result;
}

}  // namespace

ToolCallProbe tool_call_probe() {
  ToolCallProbe probe{.conversation = {}, .name = "get_weather", .argument = "Zürich"};
  // No tools declared: their schema would show the name whether or not the call is shown.
  probe.conversation.messages = {say(Role::kUser, "Is it cold?"), weather_call(), weather_result(), say(Role::kAssistant, "Yes."),
                                 say(Role::kUser, "Thanks.")};
  probe.conversation.messages[2].name.clear();
  return probe;
}

std::vector<Conversation> template_probes() {
  const Message system = say(Role::kSystem, "You are brief.");
  const Message user = say(Role::kUser, "Good morning.\nHow are you?");
  const Message assistant = say(Role::kAssistant, "I am fine.");
  Message reasoned = assistant;
  reasoned.reasoning = "They greet me.";
  const Message calls = weather_call(), result = weather_result();

  std::vector<Conversation> probes;
  const auto add = [&](std::vector<Message> messages, bool tools = false, std::optional<bool> thinking = {}) {
    Conversation probe{.messages = std::move(messages), .thinking = thinking};
    if (tools) probe.tools = {weather_tool()};
    probes.push_back(std::move(probe));
  };
  add({user});
  add({user}, false, true);
  add({user}, false, false);
  add({system, user});
  add({user, assistant, user});
  add({system, user, assistant, user, reasoned, user});
  add({user}, true);
  add({system, user, calls, result}, true);
  add({system, user, calls, result, assistant, user}, true);
  add({say(Role::kDeveloper, "You are brief."), user});
  return probes;
}

}  // namespace deepinfer::recipe
