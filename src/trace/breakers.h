// What breaks prefixes. Each request is held against the last one of its conversation (the same session, or the same first user turn)
// or of its template (the same system prompt or tools, numbers and ids aside). If their prompts part early and most of the rest is the
// same all the same, somebody edited what was cached: the edit is named, and what it cost is counted in tokens that would have been a
// hit without it, beyond what the request still found.
//
// Requests are looked at in the order of the log; texts of the last requests are kept up to a bound. Not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "recipe/conversation.h"
#include "trace/prepared_request.h"

namespace deepinfer::trace {

enum class BreakKind : uint8_t {
  kTimestamp, kRandomId, kCounter, kPath, kBillingHeader, kToolOrder, kToolSet, kToolEdit, kSerialisation, kSystemEdit,
  kRewrittenHistory, kDroppedMessages, kInsertedMessages, kDroppedReasoning, kRendering,
};
std::string_view break_name(BreakKind kind);
std::string_view break_suggestion(BreakKind kind);

// Where two texts part, with what stands around it. With redaction only lengths and digests.
struct TextDiff {
  std::string before, old_text, new_text, after;
};

struct Breaker {
  BreakKind kind = BreakKind::kSystemEdit;
  std::string segment;         // "system", "tool 3 (search)", "message 4 (user)": of the first one seen
  std::string template_name;   // beginning of the system prompt
  int64_t count = 0;
  int64_t lost_tokens = 0;
  int64_t min_position = 0, max_position = 0;  // first divergent token
  std::map<std::string, int64_t> lost_by_model;
  TextDiff example;
};

class BreakFinder {
 public:
  struct Options {
    size_t max_bytes = 64 << 20;   // of kept requests
    int64_t min_lost_tokens = 64;  // less is no break: prompts that end alike by chance
    bool redact = false;
  };
  explicit BreakFinder(const Options& options) : options_(options) {}

  // num_known_tokens: the prefix that an unlimited cache had of this prompt.
  void add(PreparedRequest&& request, int64_t num_known_tokens);
  // The costliest first; ties by name, so that the order is always the same. Of more than kMaxBreakers kinds and templates the least costly
  // were forgotten on the way.
  std::vector<Breaker> ranked() const;
  void append(Breaker breaker);

 private:
  struct Kept {
    PreparedRequest request;
    size_t bytes;
    std::vector<uint64_t> keys;
    int num_leading = 0;  // keys that still lead here
  };
  struct Parting {
    int64_t position = 0;  // first divergent token
    int64_t lost = 0;
  };

  std::vector<uint64_t> keys_of(const PreparedRequest& request) const;
  Parting parting(const PreparedRequest& old, const PreparedRequest& now, bool same_conversation, int64_t num_known_tokens) const;
  void record(const PreparedRequest& old, const PreparedRequest& now, const Parting& parting);
  void keep(PreparedRequest&& request, std::vector<uint64_t> keys);
  void drop(std::list<Kept>::iterator kept);
  void forget_least_costly();

  static constexpr size_t kMaxBreakers = 4096;

  Options options_;
  std::list<Kept> kept_;  // the latest first
  std::unordered_map<uint64_t, std::list<Kept>::iterator> latest_;
  size_t kept_bytes_ = 0;
  std::map<std::string, Breaker> breakers_;
};

// The first edit between two conversations, in the order of a prompt.
struct Edit {
  BreakKind kind;
  std::string segment;
  std::string old_text, new_text;
};
Edit first_edit(const recipe::Conversation& old, const recipe::Conversation& now);
BreakKind classify_edit(std::string_view old_text, std::string_view new_text, BreakKind otherwise);
TextDiff text_diff(std::string_view old_text, std::string_view new_text, bool redact);

}  // namespace deepinfer::trace
