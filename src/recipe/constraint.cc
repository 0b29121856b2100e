#include "recipe/constraint.h"

#include <algorithm>
#include <boost/json/object.hpp>

#include "recipe/dialect_rules.h"
#include "recipe/output_format.h"
#include "recipe/tool_grammar.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

Error invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

bool constrains_calls(const Conversation& conversation, Dialect dialect) {
  if (dialect == Dialect::kTemplate || !conversation.tools_active()) return false;
  return conversation.demands_call() ||
         std::any_of(conversation.tools.begin(), conversation.tools.end(), [](const ToolDefinition& tool) { return tool.strict.value_or(false); });
}

// Null: any text.
std::optional<json::value> answer_schema(const ResponseFormat& format) {
  switch (format.kind) {
    case ResponseFormat::Kind::kText: break;
    case ResponseFormat::Kind::kJsonObject: return json::object{{"type", "object"}};
    case ResponseFormat::Kind::kJsonSchema: return format.schema;
  }
  return std::nullopt;
}

Result<std::string> spec_of(const ParsedRequest& request, const AnswerSyntax& syntax, Dialect dialect, const tokenizer::Tokenizer& tokenizer, SchemasOf schemas) {
  const OutputFormat& extension = request.options.output_format;
  const Conversation* conversation = std::get_if<Conversation>(&request.prompt);
  if (conversation == nullptr) return extension.spec;
  const std::optional<json::value> schema = answer_schema(conversation->response_format);
  const bool calls = constrains_calls(*conversation, dialect);
  if (!extension.spec.empty()) {
    if (schema) return invalid("the answer has both a response format and " + extension.field + "; it can have one");
    if (calls) return invalid(extension.field + " and tools that have to be called by their schemas cannot go together");
    return extension.spec;
  }
  if (!calls) return schema ? schema_spec(*schema) : std::string();
  const std::optional<TokenId> dsml = tokenizer.special_id(spelling::kDsml);
  if (!dsml) return invalid("the vocabulary has no token for tool calls");
  return tool_grammar_spec({.tools = conversation->tools,
                            .names = rules_of(dialect).names,
                            .dsml = *dsml,
                            .opened = syntax.start == AnswerSyntax::Start::kToolCalls,
                            .single_call = request.options.single_tool_call,
                            .only_calls = conversation->demands_call(),
                            .all_by_schema = schemas == SchemasOf::kForcedTools && conversation->demands_call(),
                            .answer = schema ? &*schema : nullptr});
}

}  // namespace

Result<Constraint> make_constraint(const ParsedRequest& request, const AnswerSyntax& syntax, Dialect dialect, const tokenizer::Tokenizer& tokenizer,
                                   SchemasOf schemas) {
  Constraint out;
  DI_TRY(out.spec, spec_of(request, syntax, dialect, tokenizer, schemas));
  if (out.spec.empty() || syntax.start != AnswerSyntax::Start::kReasoning) return out;
  const std::optional<TokenId> end = tokenizer.special_id(spelling::kThinkEnd);
  if (!end) return invalid("the answer cannot be constrained while this model reasons: its vocabulary has no token that ends reasoning");
  out.begins_after = *end;
  return out;
}

std::string constraint_field(const ParsedRequest& request, Protocol protocol) {
  if (!request.options.output_format.field.empty()) return request.options.output_format.field;
  const Conversation* conversation = std::get_if<Conversation>(&request.prompt);
  if (conversation == nullptr || conversation->response_format.kind == ResponseFormat::Kind::kText) return "tools";
  switch (protocol) {
    case Protocol::kResponses: return "text.format";
    case Protocol::kMessages: return "output_config.format";
    default: return "response_format";
  }
}

}  // namespace deepinfer::recipe
