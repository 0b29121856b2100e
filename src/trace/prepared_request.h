// A logged call after the work that threads can do apart: rendered, tokenised, hashed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recipe/conversation.h"
#include "trace/log_record.h"
#include "trace/prefix_tree.h"

namespace deepinfer::trace {

// Tokens between two control tokens: what a turn, a system prompt or a piece of reasoning became.
struct TokenRun {
  uint32_t begin, length;
  uint64_t hash;  // of its tokens
};

struct PreparedRequest {
  LogFormat format = LogFormat::kChat;
  std::optional<int64_t> time_us;
  std::string tenant, session, model;
  uint64_t call = 0;            // hash of LogRecord::call_id; 0: not known
  LoggedUsage usage;
  bool incomplete = false;
  bool lengths_only = false;

  int64_t input_tokens = 0;
  int64_t head_tokens = 0;      // before the first user turn
  int32_t block_tokens = 0;     // that keys stand for
  bool hashed = false;          // keys come from the log; there are no tokens
  std::vector<PrefixKey> keys;
  std::vector<TokenId> tokens;
  std::vector<TokenRun> runs;   // ascending; control tokens lie between them
  recipe::Conversation conversation;  // empty for prompts that were no conversation
};

}  // namespace deepinfer::trace
