#include "recipe/dialect_rules.h"

#include <fmt/format.h>

#include <array>

#include "base/check.h"

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kHighText =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously "
    "stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected "
    "hypothesis to ensure absolutely no assumption is left unchecked.\n\n";
constexpr std::string_view kMaxText =
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its "
    "most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface "
    "symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption "
    "remains unchecked and no error remains undiscovered.\n\n";

constexpr std::string_view kSchemaIntro = "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";
constexpr std::string_view kJsonMode =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n{\"type\": \"json_object\"}";
constexpr std::string_view kJsonModeV4 =
    "You are a helpful assistant designed to output JSON.\n## Response Format:\n\nReply with JSON object ONLY.";

constexpr MarkupNames kPlainNames{"tool_calls", "invoke", "parameter"}, kSpacedNames{" calls", " invoke", " parameter"};

constexpr std::array<DialectRules, 3> kRules = {{
    {.dialect = Dialect::kV4Preview, .names = kPlainNames, .system = SystemPlacement::kLeading, .images = false, .joins_empty_user_texts = true,
     .empty_line_in_empty_call = true, .numbers = NumberStyle::kPython, .json_mode = kJsonMode, .developer = DeveloperAs::kUser},
    {.dialect = Dialect::kV4, .names = kPlainNames, .system = SystemPlacement::kFront, .images = false, .joins_empty_user_texts = false,
     .empty_line_in_empty_call = false, .numbers = NumberStyle::kCompact, .json_mode = kJsonModeV4, .developer = DeveloperAs::kUser},
    {.dialect = Dialect::kV41, .names = kSpacedNames, .system = SystemPlacement::kInPlace, .images = true, .joins_empty_user_texts = true,
     .empty_line_in_empty_call = true, .numbers = NumberStyle::kPython, .json_mode = kJsonMode, .developer = DeveloperAs::kSystem},
}};

int32_t effort_number(const Conversation& conversation) {
  if (conversation.effort_number) return *conversation.effort_number;
  switch (conversation.effort) {
    case Effort::kLow: return 50;
    case Effort::kUnset:
    case Effort::kHigh:
    case Effort::kXHigh: return 75;
    case Effort::kMax: return 100;
  }
  return 75;
}

constexpr std::string_view kToolBlockHead = R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜{block}>" block like the following:

<｜DSML｜{block}>
<｜DSML｜{invoke} name="$TOOL_NAME">
<｜DSML｜{parameter} name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜{parameter}>
...
</｜DSML｜{invoke}>
<｜DSML｜{invoke} name="$TOOL_NAME2">
...
</｜DSML｜{invoke}>
</｜DSML｜{block}>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";
constexpr std::string_view kToolBlockTail =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";

}  // namespace

const DialectRules& rules_of(Dialect dialect) {
  for (const DialectRules& rules : kRules) {
    if (rules.dialect == dialect) return rules;
  }
  CHECK(dialect != Dialect::kTemplate);
  return kRules.back();
}

std::string effort_text(Dialect dialect, const Conversation& conversation) {
  const Effort effort = conversation.effort;
  switch (dialect) {
    case Dialect::kTemplate: return {};
    case Dialect::kV4Preview: return std::string(effort == Effort::kMax ? kHighText : std::string_view());
    case Dialect::kV4:
      if (effort == Effort::kLow) return {};
      return std::string(effort == Effort::kMax ? kMaxText : kHighText);
    case Dialect::kV41:
      return fmt::format("Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
                         effort_number(conversation));
  }
  return {};
}

std::string tool_block_head(const MarkupNames& names) {
  return fmt::format(fmt::runtime(kToolBlockHead), fmt::arg("block", names.block), fmt::arg("invoke", names.invoke),
                     fmt::arg("parameter", names.parameter));
}

std::string_view tool_block_tail() { return kToolBlockTail; }

std::string_view schema_intro() { return kSchemaIntro; }

}  // namespace deepinfer::recipe
