// Templates for models that bring none. Only where the vocabulary itself has the control tokens of a chat format: whether a model
// was trained on a format that is spelled in ordinary text cannot be seen.
#include <initializer_list>

#include "recipe/chat_template.h"

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kChatMl =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

constexpr std::string_view kLlama3 =
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n{{ message.content | trim }}"
    "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}";

constexpr std::string_view kMistral =
    "{{ bos_token }}{% set ns = namespace(system='') %}{% for message in messages %}"
    "{% if message.role == 'system' %}{% set ns.system = ns.system ~ message.content ~ '\n\n' %}"
    "{% elif message.role == 'assistant' %}{{ message.content }}{{ eos_token }}"
    "{% else %}[INST] {{ ns.system }}{{ message.content }}[/INST]{% set ns.system = '' %}{% endif %}{% endfor %}";

bool has_all(const tokenizer::Tokenizer& tokenizer, std::initializer_list<std::string_view> spellings) {
  for (const std::string_view spelling : spellings) {
    if (!tokenizer.special_id(spelling)) return false;
  }
  return true;
}

}  // namespace

Result<std::string> default_chat_template(const tokenizer::Tokenizer& tokenizer) {
  // A newline right after a tag belongs to the tag, so the templates above end their lines inside the text.
  if (has_all(tokenizer, {"<|im_start|>", "<|im_end|>"})) return std::string(kChatMl);
  if (has_all(tokenizer, {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"})) return std::string(kLlama3);
  if (has_all(tokenizer, {"[INST]", "[/INST]"})) return std::string(kMistral);
  return Error{Code::kUnsupported, "the model has no chat template; give one with --chat-template, or use /v1/completions"};
}

}  // namespace deepinfer::recipe
