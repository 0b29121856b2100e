// One model call as a log tells it, whichever format the log has. What is missing is missing: nothing is guessed here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/request.h"
#include "recipe/conversation.h"

namespace deepinfer::trace {

// The formats that are told apart; docs/audit.md says by which fields.
enum class LogFormat : uint8_t {
  kChat, kMessages, kResponses, kCompletions,                     // request bodies
  kLiteLlm, kLangfuse, kHelicone, kOtel, kBodyLog, kEnvoyTap, kDeepInfer, kHar,  // what others write around them
  kClaudeCode, kCodex,                                            // session files of coding agents
  kHashTrace, kLengths,                                           // no prompts
};
constexpr int kNumLogFormats = static_cast<int>(LogFormat::kLengths) + 1;
std::string_view format_name(LogFormat format);
std::optional<LogFormat> format_named(std::string_view name);
constexpr bool is_session(LogFormat format) { return format == LogFormat::kClaudeCode || format == LogFormat::kCodex; }

// Prompts of a hash trace: block i is known by a number that equal blocks share.
struct HashedPrompt {
  std::vector<uint64_t> block_ids;
  int32_t block_tokens;
};
// Only a length is known.
struct UnknownPrompt {};

using LoggedPrompt = std::variant<recipe::Conversation, std::string, std::vector<TokenId>, HashedPrompt, UnknownPrompt>;

// Of one request; more is damage.
constexpr int64_t kMaxLoggedTokens = INT32_MAX;

// Token counts as logged; input counts cached and written ones too, written those that are kept for an hour. -1: not in the log.
struct LoggedUsage {
  int64_t input = -1, cached = -1, written = -1, written_1h = -1, output = -1;
};

struct LogRecord {
  LogFormat format = LogFormat::kChat;
  std::optional<int64_t> time_us;  // since 1970; of a trace, since its own beginning
  std::string tenant, session, model;
  std::string call_id;             // what a copy of the same call in another file has too; "": not known
  LoggedUsage usage;
  LoggedPrompt prompt;
  bool incomplete = false;  // the log leaves out a part of the prompt that the model saw (system prompt, tools, stored turns)
};

// Why a line is not in the figures.
enum class Skip : uint8_t {
  kNotJson, kTooDeep, kTooLong, kNoRequest, kNoPrompt, kResponseOnly, kSessionLine, kOtherBlocks, kBadCsv, kUnreadable, kOtherFormat, kOtherKind, kBeyondMemory,
  kCopy, kNoCall,
};
constexpr int kNumSkips = static_cast<int>(Skip::kNoCall) + 1;
std::string_view skip_reason(Skip skip);

}  // namespace deepinfer::trace
