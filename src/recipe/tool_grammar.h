// The grammar of an answer with tool calls in a DeepSeek dialect (docs/structured-output.md): calls of declared tools, each with
// parameters by its tool's schema. Required parameters come first, in the schema's order, then optional ones, each at most once.
//
// A parameter whose schema is a text (with an enumeration, a constant, a length) is written raw, with string="true"; all else, a text with
// a pattern or a format too, as JSON by its schema, with string="false". A tool that is not strict may be called with any parameters, or also by its schema (all_by_schema) where that says which
// parameters there are.
#pragma once

#include <boost/json/value.hpp>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "core/request.h"
#include "recipe/conversation.h"
#include "recipe/dialect_rules.h"

namespace deepinfer::recipe {

struct ToolGrammar {
  std::span<const ToolDefinition> tools;   // not empty
  MarkupNames names;
  TokenId dsml = -1;                       // the marker's control token
  bool opened = false;                     // the prompt ends behind the opening of the block: calls are all there is
  bool single_call = false;
  bool only_calls = false;                 // no answer without one, and no text in front
  bool all_by_schema = false;              // tools that are not strict, too
  const boost::json::value* answer = nullptr;  // schema of an answer without calls; null: any text, also in front of calls
};

// The engine's description of it (core/request.h, Constraint::spec). Errors: kInvalidArgument (what a schema that binds says of its parameters
// as a whole cannot be kept).
Result<std::string> tool_grammar_spec(const ToolGrammar& wanted);

}  // namespace deepinfer::recipe
