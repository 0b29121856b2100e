// Which prompt and output language a model speaks. kTemplate is any model that brings its own Jinja template (chat_template.h); the
// others are DeepSeek's, whose rules are data and code of this folder: they have no template that could be run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "recipe/conversation.h"
#include "recipe/prompt.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

enum class Dialect : uint8_t {
  kTemplate,   // the model's own chat template
  kV4Preview,  // DeepSeek V4 checkpoints before July 2026
  kV4,         // DeepSeek V4 from July 2026 on
  kV41,        // DeepSeek V4.1
};

std::string_view dialect_name(Dialect dialect);  // "template", "v4-preview", "v4", "v4.1"
std::optional<Dialect> dialect_of_name(std::string_view name);

// The dialect of a model whose operator did not say. config_json: its config.json, or empty (GGUF). Rules, first that applies: a
// vocabulary with <｜System｜> or <｜deepseek_image｜> next to ｜DSML｜ speaks v4.1; one with ｜DSML｜ alone speaks v4 if config.json has
// dspark_* keys (also inside text_config), else v4-preview; all others kTemplate. A wrong pick is silent and harms quality: log it.
Dialect pick_dialect(std::string_view config_json, const tokenizer::Tokenizer& tokenizer);

enum class DeveloperAs : uint8_t { kDialect, kSystem, kUser };  // kDialect: system on v4.1, user on v4 and v4-preview

// Server settings of a DeepSeek dialect.
struct DialectOptions {
  HistoryReasoning history_reasoning = HistoryReasoning::kReference;
  DeveloperAs developer_as = DeveloperAs::kDialect;
};

// The renderer of a DeepSeek dialect (not kTemplate). tokenizer: borrowed for the call; its control tokens are looked up by spelling.
// Errors: kUnsupported (the vocabulary lacks a token that the dialect cannot do without, named).
Result<std::unique_ptr<PromptRenderer>> make_dialect_renderer(Dialect dialect, const tokenizer::Tokenizer& tokenizer,
                                                              const DialectOptions& options = {});

}  // namespace deepinfer::recipe
