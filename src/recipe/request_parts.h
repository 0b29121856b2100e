// What the parsers of conversation requests share: contents with images, tools, forced choices, efforts. Each reports into Problems.
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "recipe/conversation.h"
#include "recipe/fields.h"
#include "recipe/generation_options.h"

namespace deepinfer::recipe {

constexpr size_t kMaxToolNameBytes = 128;

std::string element_path(std::string_view path, size_t idx);  // "messages[2]"

// Blocks of a message, joined with two newlines. An image is an empty text with the image in it.
class ContentBuilder {
 public:
  explicit ContentBuilder(Conversation& conversation) : conversation_(conversation) {}
  void add_text(std::string_view text);
  void add_image(Image image);
  bool empty() const { return num_blocks_ == 0; }
  // Moves what was built into a message; the builder is empty again.
  void move_to(Message& message);

 private:
  Conversation& conversation_;
  std::string text_;
  std::vector<PlacedImage> images_;
  size_t num_blocks_ = 0;
};

// An image by URL, or by data URL. Reports what is wrong with it, or that this model reads text only; the form is checked first, so that
// a client learns of a broken image whatever the model.
std::optional<Image> read_image_url(std::string_view url, std::string_view detail, const std::string& path, const OptionsContext& context,
                                    Problems& problems);
// Base64 of the standard alphabet, whole. A missing padding is added. nullopt: it is none.
std::optional<std::string> repaired_base64(std::string_view text);

bool is_tool_name(std::string_view name);
// The name that the model sees of a tool in a namespace; an empty namespace adds nothing.
std::string qualified_tool_name(std::string_view name_space, std::string_view name, Dialect dialect);
// A tool's fields, checked: the name's form, that parameters are a schema of an object, that no other tool has the name.
void add_tool(FieldReader& fields, ToolDefinition tool, const boost::json::object* parameters, std::string_view parameters_key,
              std::vector<ToolDefinition>& tools);
// Where a tool has to be called: leaves only `name` if it is not empty. Reports what cannot be: no tools, no such tool, thinking is on,
// a model whose hand nothing here can force.
void force_tools(FieldReader& fields, std::string_view name, const OptionsContext& context, Conversation& conversation);
// Where some tool has to be called, thinking or not. Reports what cannot be: no tools, a model whose calls are not known.
void demand_call(FieldReader& fields, const OptionsContext& context, Conversation& conversation);

constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"};
// "none" turns thinking off. Empty: nothing.
void apply_effort(std::string_view effort, Conversation& conversation);
// `thinking` of Chat and Messages: its type, which wins over an effort, and its budget_tokens (nullopt: none, or no thinking).
void read_thinking(FieldReader& fields, Conversation& conversation);
std::optional<int32_t> thinking_budget(FieldReader& fields);
// name, schema, strict: of Chat's json_schema and of text.format.
void read_json_schema(FieldReader fields, ResponseFormat& out);
// What is known of a response format once the conversation is: JSON mode needs the word in it, or the model does not know what is wanted.
void check_response_format(FieldReader& fields, std::string_view key, const Conversation& conversation);

}  // namespace deepinfer::recipe
