// What a request wants its answer to be, as the engine takes it: response formats, tool calls and extensions to one Constraint.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "core/request.h"
#include "recipe/dialect.h"
#include "recipe/prompt.h"
#include "recipe/protocol.h"

namespace deepinfer::recipe {

// Which tools are called with parameters by their schemas.
enum class SchemasOf : uint8_t {
  kStrictTools,
  kForcedTools,  // where a call has to be, tools that are not strict as well
};

// Without a spec: there is nothing to enforce. Errors: kInvalidArgument (two that cannot both be; reasoning that has no end token).
// Tool calls are constrained in DeepSeek's dialects, where a call has to be or a declared tool is strict; answers always, by the schema of
// a response format or an extension. While the model reasons it is free; the constraint begins behind the token that ends reasoning.
Result<Constraint> make_constraint(const ParsedRequest& request, const AnswerSyntax& syntax, Dialect dialect, const tokenizer::Tokenizer& tokenizer,
                                   SchemasOf schemas = SchemasOf::kStrictTools);

// The request's field that a constraint which cannot be honoured comes from.
std::string constraint_field(const ParsedRequest& request, Protocol protocol);

}  // namespace deepinfer::recipe
