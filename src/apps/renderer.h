// Which chat template a model is served with: the operator's file, else the model's own, else one guessed from its control tokens.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/model_text.h"
#include "recipe/prompt.h"

namespace deepinfer::apps {

// Null if the model has no template and none fits: then only plain completions are possible, which a line on stderr says.
// Errors: the file cannot be read; the template does not compile (naming where it stands).
Result<std::unique_ptr<recipe::PromptRenderer>> make_renderer(const engine::ModelText& text, const std::string& template_file);

}  // namespace deepinfer::apps
