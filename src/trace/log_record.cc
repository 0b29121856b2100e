#include "trace/log_record.h"

#include <array>

namespace deepinfer::trace {
namespace {

constexpr std::array<std::string_view, kNumLogFormats> kFormatNames = {
    "chat", "messages", "responses", "completions", "litellm", "langfuse", "helicone", "otel", "body-log", "envoy-tap", "deepinfer",
    "har", "claude-code", "codex", "hash-trace", "lengths"};

}  // namespace

std::string_view format_name(LogFormat format) { return kFormatNames[static_cast<size_t>(format)]; }

std::optional<LogFormat> format_named(std::string_view name) {
  for (int i = 0; i < kNumLogFormats; ++i) {
    if (kFormatNames[static_cast<size_t>(i)] == name) return static_cast<LogFormat>(i);
  }
  return std::nullopt;
}

std::string_view skip_reason(Skip skip) {
  switch (skip) {
    case Skip::kNotJson: return "not JSON";
    case Skip::kTooDeep: return "JSON nested too deep";
    case Skip::kTooLong: return "longer than a line may be";
    case Skip::kNoRequest: return "JSON without a model request that is known here";
    case Skip::kNoPrompt: return "a request whose prompt was not logged";
    case Skip::kResponseOnly: return "an answer without its request";
    case Skip::kSessionLine: return "a line of a session file that calls no model";
    case Skip::kOtherBlocks: return "block hashes of another block size than the first record's";
    case Skip::kBadCsv: return "a CSV row that does not fit its header";
    case Skip::kUnreadable: return "bytes that cannot be decompressed or read";
    case Skip::kOtherFormat: return "not in the format that was asked for";
    case Skip::kOtherKind: return "prompts among block hashes, or block hashes among prompts: these are audited apart";
    case Skip::kBeyondMemory: return "more requests than the memory holds";
    case Skip::kCopy: return "a call that another session file told before";
    case Skip::kNoCall: return "not a model's call: refused or failed, what ran around one, or an answer out of a gateway's cache";
  }
  return "";
}

}  // namespace deepinfer::trace
