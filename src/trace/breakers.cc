#include "trace/breakers.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cctype>
#include <utility>

namespace deepinfer::trace {
namespace {

using recipe::Conversation;
using recipe::Message;
using recipe::Role;
using recipe::ToolDefinition;

constexpr size_t kMaskBytes = 256;
constexpr size_t kContextBytes = 80, kChangeBytes = 240;

uint64_t hash_of(std::string_view text, uint64_t seed = 0) { return XXH3_64bits_withSeed(text.data(), text.size(), seed); }

// ASCII's, whatever the locale: every request asks thousands of times.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_calendar_word(std::string_view word) {
  static constexpr std::string_view kWords[] = {"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "mon", "tue",
                                                "wed", "thu", "fri", "sat", "sun", "am", "pm", "january", "february", "march", "april", "june",
                                                "july", "august", "september", "october", "november", "december", "monday", "tuesday",
                                                "wednesday", "thursday", "friday", "saturday", "sunday"};
  constexpr size_t kLongest = 9;
  if (word.size() < 2 || word.size() > kLongest) return false;
  char lower[kLongest];
  std::transform(word.begin(), word.end(), lower, [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return std::find(std::begin(kWords), std::end(kWords), std::string_view(lower, word.size())) != std::end(kWords);
}

// The text with words that hold a digit, and names of days and months, replaced: equal for texts that differ in such only. An id with
// dashes is one word: some of its parts have no digit.
std::string masked(std::string_view text) {
  const auto in_word = [](char c) { return is_word(c) || c == '-' || c == '_'; };
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (!in_word(text[at])) {
      out += text[at++];
      continue;
    }
    size_t end = at;
    bool digit = false;
    for (; end < text.size() && in_word(text[end]); ++end) digit |= is_digit(text[end]);
    const std::string_view word = text.substr(at, end - at);
    out += digit || is_calendar_word(word) ? std::string_view("#") : word;
    at = end;
  }
  return out;
}

uint64_t mask_key(std::string_view text, uint64_t seed) { return hash_of(masked(text), seed); }

const Message* first_of(const Conversation& conversation, Role role) {
  for (const Message& message : conversation.messages) {
    if (message.role == role) return &message;
  }
  return nullptr;
}

// storage: for several messages joined; one is seen where it stands.
std::string_view system_text(const Conversation& conversation, std::string& storage) {
  std::string_view out;
  for (const Message& message : conversation.messages) {
    if (message.role != Role::kSystem && message.role != Role::kDeveloper) break;
    if (out.empty()) {
      out = message.content;
      continue;
    }
    if (storage.empty()) storage = out;
    storage.append("\n\n").append(message.content);
    out = storage;
  }
  return out;
}

size_t first_turn(const Conversation& conversation) {
  size_t at = 0;
  while (at < conversation.messages.size() && (conversation.messages[at].role == Role::kSystem || conversation.messages[at].role == Role::kDeveloper)) ++at;
  return at;
}

std::string tool_text(const ToolDefinition& tool) {
  return fmt::format("{}: {}\n{}", tool.name, tool.description, boost::json::serialize(tool.parameters));
}

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kSystem: return "system";
    case Role::kDeveloper: return "developer";
    case Role::kUser: return "user";
    case Role::kAssistant: return "assistant";
    case Role::kTool: return "tool result";
    case Role::kLatestReminder: return "reminder";
  }
  return "";
}

std::string calls_text(const Message& message) {
  std::string out;
  for (const recipe::ToolCall& call : message.tool_calls) out += fmt::format("{}({})\n", call.name, call.arguments);
  return out;
}

// Ids of calls are not rendered, so they are not compared.
bool same_calls(const Message& a, const Message& b) { return calls_text(a) == calls_text(b); }

bool same_message(const Message& a, const Message& b) {
  return a.role == b.role && a.content == b.content && a.reasoning.value_or("") == b.reasoning.value_or("") && same_calls(a, b);
}

bool same_json(std::string_view a, std::string_view b) {
  boost::system::error_code error_a, error_b;
  const boost::json::value value_a = boost::json::parse(a, error_a), value_b = boost::json::parse(b, error_b);
  return !error_a && !error_b && value_a == value_b;
}

bool same_calls_reordered(const Message& a, const Message& b) {
  if (a.tool_calls.size() != b.tool_calls.size() || a.tool_calls.empty()) return false;
  for (size_t i = 0; i < a.tool_calls.size(); ++i) {
    if (a.tool_calls[i].name != b.tool_calls[i].name || !same_json(a.tool_calls[i].arguments, b.tool_calls[i].arguments)) return false;
  }
  return true;
}

std::string join_names(const std::vector<ToolDefinition>& tools) {
  std::string out;
  for (const ToolDefinition& tool : tools) out += (out.empty() ? "" : ", ") + tool.name;
  return out;
}

Edit tool_edit(const std::vector<ToolDefinition>& old, const std::vector<ToolDefinition>& now) {
  std::vector<std::string> a, b;
  for (const ToolDefinition& tool : old) a.push_back(tool_text(tool));
  for (const ToolDefinition& tool : now) b.push_back(tool_text(tool));
  size_t k = 0;
  while (k < a.size() && k < b.size() && a[k] == b[k]) ++k;
  const std::string segment = fmt::format("tool {} ({})", k + 1, k < now.size() ? now[k].name : old[k].name);
  std::vector<std::string> sorted_a = a, sorted_b = b;
  std::sort(sorted_a.begin(), sorted_a.end());
  std::sort(sorted_b.begin(), sorted_b.end());
  if (sorted_a == sorted_b) return {BreakKind::kToolOrder, segment, join_names(old), join_names(now)};
  if (k < old.size() && k < now.size() && old[k].name == now[k].name) {
    const bool same = old[k].description == now[k].description && old[k].parameters == now[k].parameters;
    return {same ? BreakKind::kSerialisation : classify_edit(a[k], b[k], BreakKind::kToolEdit), segment, a[k], b[k]};
  }
  return {BreakKind::kToolSet, segment, join_names(old), join_names(now)};
}

Edit message_edit(const Conversation& old, const Conversation& now, size_t a, size_t b) {
  const Message& was = old.messages[a];
  const Message& is = now.messages[b];
  const std::string segment = fmt::format("message {} ({})", b + 1, role_name(is.role));
  if (was.role == is.role && was.content == is.content) {
    if (same_calls(was, is)) {
      const bool dropped = is.reasoning.value_or("").empty();
      return {dropped ? BreakKind::kDroppedReasoning : BreakKind::kRewrittenHistory, segment, was.reasoning.value_or(""), is.reasoning.value_or("")};
    }
    if (same_calls_reordered(was, is)) return {BreakKind::kSerialisation, segment, calls_text(was), calls_text(is)};
  }
  for (size_t k = a + 1; k < old.messages.size(); ++k) {
    if (same_message(old.messages[k], is)) return {BreakKind::kDroppedMessages, segment, was.content, is.content};
  }
  for (size_t k = b + 1; k < now.messages.size(); ++k) {
    if (same_message(now.messages[k], was)) return {BreakKind::kInsertedMessages, segment, was.content, is.content};
  }
  if (was.content == is.content) return {BreakKind::kRewrittenHistory, segment, calls_text(was), calls_text(is)};
  return {classify_edit(was.content, is.content, BreakKind::kRewrittenHistory), segment, was.content, is.content};
}

// The first token in which two prompts part. Keys are of whole prefixes: where those part is searched for, then a block is looked through.
int64_t common_tokens(const PreparedRequest& a, const PreparedRequest& b) {
  size_t same = 0, other = std::min(a.keys.size(), b.keys.size()) + 1;
  while (same + 1 < other) {
    const size_t middle = same + (other - same) / 2;
    (a.keys[middle - 1] == b.keys[middle - 1] ? same : other) = middle;
  }
  size_t at = same * static_cast<size_t>(a.block_tokens);
  const size_t limit = std::min(a.tokens.size(), b.tokens.size());
  while (at < limit && a.tokens[at] == b.tokens[at]) ++at;
  return static_cast<int64_t>(at);
}

// --- two texts

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

size_t common_suffix(std::string_view a, std::string_view b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[a.size() - 1 - n] == b[b.size() - 1 - n]) ++n;
  return n;
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Whole code points of about the last or first n bytes.
std::string_view tail(std::string_view text, size_t n) {
  size_t at = text.size() > n ? text.size() - n : 0;
  while (at < text.size() && is_continuation(text[at])) ++at;
  return text.substr(at);
}
std::string_view head(std::string_view text, size_t n) {
  size_t end = std::min(n, text.size());
  while (end > 0 && end < text.size() && is_continuation(text[end])) --end;
  return text.substr(0, end);
}

// The word, in the sense of what stands between spaces, quotes and brackets, around a position.
std::string_view word_at(std::string_view text, size_t at) {
  static constexpr std::string_view kEnds = " \t\r\n\"'`<>()[]{},;=";
  size_t begin = std::min(at, text.size()), end = begin;
  while (begin > 0 && kEnds.find(text[begin - 1]) == std::string_view::npos) --begin;
  while (end < text.size() && kEnds.find(text[end]) == std::string_view::npos) ++end;
  return text.substr(begin, end - begin);
}

std::string_view line_at(std::string_view text, size_t at) {
  at = std::min(at, text.size());
  const size_t begin = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  const size_t start = begin == std::string_view::npos ? 0 : begin + 1;
  return text.substr(start, text.find('\n', at) - start);
}

size_t count_digits(std::string_view word) { return static_cast<size_t>(std::count_if(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; })); }

bool is_random_id(std::string_view word) {
  size_t hex = 0, alnum = 0, longest = 0, run = 0;
  for (const char c : word) {
    const auto u = static_cast<unsigned char>(c);
    hex += std::isxdigit(u) != 0;
    alnum += std::isalnum(u) != 0;
    run = std::isalnum(u) != 0 ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const bool uuid = word.size() >= 32 && hex >= 30 && count_digits(word) > 0;
  return uuid || (longest >= 12 && count_digits(word) >= 2 && alnum != count_digits(word));
}

bool is_time(std::string_view word, std::string_view line) {
  std::string_view part = word;
  while (!part.empty() && !is_word(part.back())) part.remove_suffix(1);
  if (is_calendar_word(part)) return true;
  if (count_digits(word) == 0) return false;
  // 10:31, 2026-11-30, 30/11/2026, 2026-11-30T10:31:00Z; or Unix time.
  for (size_t i = 1; i + 1 < word.size(); ++i) {
    if ((word[i] == ':' || word[i] == '-' || word[i] == '/') && std::isdigit(static_cast<unsigned char>(word[i - 1])) != 0 &&
        std::isdigit(static_cast<unsigned char>(word[i + 1])) != 0) {
      return true;
    }
  }
  if (count_digits(part) == part.size() && (part.size() == 10 || part.size() == 13) && part[0] == '1') return true;
  std::string lower(line);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view hint : {"date", "time", "today", "clock"}) {
    if (lower.find(hint) != std::string::npos) return true;
  }
  for (size_t at = 0; at < line.size();) {
    size_t end = at;
    while (end < line.size() && is_word(line[end])) ++end;
    if (end > at + 2 && is_calendar_word(line.substr(at, end - at))) return true;
    at = end + 1;
  }
  return false;
}

std::string redacted(std::string_view text) { return text.empty() ? "" : fmt::format("[{} bytes, {:016x}]", text.size(), hash_of(text)); }

// What redacted() made, which a joined report may have from its shards.
bool is_redacted(std::string_view text) {
  constexpr std::string_view kMiddle = " bytes, ";
  constexpr size_t kDigest = 16;
  if (!text.starts_with('[') || !text.ends_with(']')) return false;
  text = text.substr(1, text.size() - 2);
  const size_t middle = text.find(kMiddle);
  if (middle == std::string_view::npos || middle == 0 || count_digits(text.substr(0, middle)) != middle) return false;
  const std::string_view digest = text.substr(middle + kMiddle.size());
  return digest.size() == kDigest && digest.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

void redact(Breaker& breaker) {
  if (!is_redacted(breaker.template_name)) breaker.template_name = redacted(breaker.template_name);
  if (breaker.segment.starts_with("tool ")) breaker.segment = breaker.segment.substr(0, breaker.segment.find(" ("));
  TextDiff& example = breaker.example;
  example.before.clear();
  example.after.clear();
  for (std::string* text : {&example.old_text, &example.new_text}) {
    if (!is_redacted(*text)) *text = redacted(*text);
  }
}

}  // namespace

std::string_view break_name(BreakKind kind) {
  switch (kind) {
    case BreakKind::kTimestamp: return "timestamp";
    case BreakKind::kRandomId: return "random_id";
    case BreakKind::kCounter: return "counter";
    case BreakKind::kPath: return "path";
    case BreakKind::kBillingHeader: return "billing_header";
    case BreakKind::kToolOrder: return "tool_order";
    case BreakKind::kToolSet: return "tool_set";
    case BreakKind::kToolEdit: return "tool_edit";
    case BreakKind::kSerialisation: return "serialisation";
    case BreakKind::kSystemEdit: return "system_edit";
    case BreakKind::kRewrittenHistory: return "rewritten_history";
    case BreakKind::kDroppedMessages: return "dropped_messages";
    case BreakKind::kInsertedMessages: return "inserted_messages";
    case BreakKind::kDroppedReasoning: return "dropped_reasoning";
    case BreakKind::kRendering: return "rendering";
  }
  return "";
}

std::string_view break_suggestion(BreakKind kind) {
  switch (kind) {
    case BreakKind::kTimestamp: return "Move the time to the end of the prompt, or round it to the day.";
    case BreakKind::kRandomId: return "Send the id as metadata, or put it into the last turn; the model hardly needs it.";
    case BreakKind::kCounter: return "Put numbers that change with each request behind everything that stays.";
    case BreakKind::kPath: return "Keep session folders and log paths out of the system prompt; tell them in the first turn that needs them.";
    case BreakKind::kBillingHeader: return "Switch the client's attribution header off, or strip it at the gateway.";
    case BreakKind::kToolOrder: return "Sort the tools by name before sending them.";
    case BreakKind::kToolSet: return "Declare all tools always, in one order; restrict their use with tool_choice instead.";
    case BreakKind::kToolEdit: return "Keep what changes out of tool descriptions; say it in a turn.";
    case BreakKind::kSerialisation: return "Serialise JSON once, with one order of keys, and send the same bytes again.";
    case BreakKind::kSystemEdit: return "Keep the system prompt fixed within a conversation; append what is new as a turn.";
    case BreakKind::kRewrittenHistory: return "Append to the history, never rewrite it; answers go back exactly as they came.";
    case BreakKind::kDroppedMessages: return "Compact the history rarely and in large steps, not a message with each turn.";
    case BreakKind::kInsertedMessages: return "Add reminders behind the last turn, not between old ones.";
    case BreakKind::kDroppedReasoning: return "Send reasoning back with the turn it belongs to, or never; not once with and once without.";
    case BreakKind::kRendering: return "The model's own prompt format changes earlier turns here; history_reasoning = keep avoids it on your own server.";
  }
  return "";
}

BreakKind classify_edit(std::string_view old_text, std::string_view new_text, BreakKind otherwise) {
  const size_t at = common_prefix(old_text, new_text);
  const std::string_view old_word = word_at(old_text, at), new_word = word_at(new_text, at), line = line_at(new_text, at);
  if (line.find("x-anthropic-billing-header") != std::string_view::npos || line.find("billing-header") != std::string_view::npos) return BreakKind::kBillingHeader;
  if (old_word.empty() || new_word.empty()) return otherwise;
  // A volatile word is of the same make each time; another word is an edit.
  if (masked(old_word) != masked(new_word) && !(is_random_id(old_word) && is_random_id(new_word)) &&
      !(is_time(old_word, "") && is_time(new_word, ""))) {
    return otherwise;
  }
  if (new_word.find('/') != std::string_view::npos && (new_word[0] == '/' || new_word[0] == '~' || new_word[0] == '.') && !is_time(new_word.substr(0, 10), "")) {
    return BreakKind::kPath;
  }
  if (is_random_id(old_word) && is_random_id(new_word) && !(is_time(new_word, "") && new_word.find(':') != std::string_view::npos)) return BreakKind::kRandomId;
  if (is_time(old_word, line) && is_time(new_word, line)) return BreakKind::kTimestamp;
  if (count_digits(old_word) > 0 && count_digits(new_word) > 0) return BreakKind::kCounter;
  return otherwise;
}

TextDiff text_diff(std::string_view old_text, std::string_view new_text, bool redact) {
  size_t prefix = common_prefix(old_text, new_text);
  while (prefix > 0 && prefix < new_text.size() && is_continuation(new_text[prefix])) --prefix;
  size_t suffix = std::min(common_suffix(old_text, new_text), std::min(old_text.size(), new_text.size()) - prefix);
  while (suffix > 0 && is_continuation(new_text[new_text.size() - suffix])) --suffix;
  const std::string_view old_middle = old_text.substr(prefix, old_text.size() - suffix - prefix);
  const std::string_view new_middle = new_text.substr(prefix, new_text.size() - suffix - prefix);
  if (redact) return {"", redacted(old_middle), redacted(new_middle), ""};
  return {std::string(tail(new_text.substr(0, prefix), kContextBytes)), std::string(head(old_middle, kChangeBytes)),
          std::string(head(new_middle, kChangeBytes)), std::string(head(new_text.substr(new_text.size() - suffix), kContextBytes))};
}

Edit first_edit(const Conversation& old, const Conversation& now) {
  std::string old_storage, new_storage;
  const std::string old_system(system_text(old, old_storage)), new_system(system_text(now, new_storage));
  if (old_system != new_system) return {classify_edit(old_system, new_system, BreakKind::kSystemEdit), "system", old_system, new_system};
  const auto same_tool = [](const ToolDefinition& a, const ToolDefinition& b) { return tool_text(a) == tool_text(b); };
  if (!std::equal(old.tools.begin(), old.tools.end(), now.tools.begin(), now.tools.end(), same_tool)) return tool_edit(old.tools, now.tools);
  size_t a = first_turn(old), b = first_turn(now);
  for (; a < old.messages.size() && b < now.messages.size(); ++a, ++b) {
    if (!same_message(old.messages[a], now.messages[b])) return message_edit(old, now, a, b);
  }
  return {BreakKind::kRendering, "earlier turns", "", ""};
}

std::vector<uint64_t> BreakFinder::keys_of(const PreparedRequest& request) const {
  const uint64_t scope = hash_of(request.model, hash_of(request.tenant));
  std::vector<uint64_t> keys;
  if (!request.session.empty()) keys.push_back(hash_of(request.session, scope + 1));
  else keys.push_back(0);
  const Message* user = first_of(request.conversation, Role::kUser);
  keys.push_back(user != nullptr ? mask_key(head(user->content, 4 * kMaskBytes), scope + 2) : 0);
  std::string storage;
  const std::string_view system = system_text(request.conversation, storage);
  keys.push_back(!system.empty() ? mask_key(head(system, kMaskBytes), scope + 3) : 0);
  keys.push_back(!system.empty() ? mask_key(tail(system, kMaskBytes), scope + 4) : 0);
  std::vector<std::string> names;
  for (const ToolDefinition& tool : request.conversation.tools) names.push_back(tool.name);
  std::sort(names.begin(), names.end());
  uint64_t tools = 0;
  for (const std::string& name : names) tools = hash_of(name, tools + scope + 5);
  keys.push_back(tools);
  return keys;
}

BreakFinder::Parting BreakFinder::parting(const PreparedRequest& old, const PreparedRequest& now, bool same_conversation,
                                          int64_t num_known_tokens) const {
  Parting out;
  out.position = common_tokens(old, now);
  const auto run_at = [&](const PreparedRequest& r) {
    return std::find_if(r.runs.begin(), r.runs.end(), [&](const TokenRun& run) { return run.begin + int64_t{run.length} > out.position; });
  };
  const auto old_run = run_at(old), new_run = run_at(now);
  if (old_run == old.runs.end() || new_run == now.runs.end()) return out;
  const auto beyond_known = [&](int64_t begin, int64_t end) { return std::max<int64_t>(0, end - std::max(begin, num_known_tokens)); };
  const bool is_head = new_run->begin < now.head_tokens;
  if (!same_conversation && !is_head) return out;
  std::unordered_map<uint64_t, int> left;
  for (auto run = old_run; run != old.runs.end(); ++run) ++left[run->hash];
  for (auto run = new_run; run != now.runs.end(); ++run) {
    const int64_t end = run->begin + int64_t{run->length};
    const auto found = left.find(run->hash);
    if (found != left.end() && found->second > 0) {
      --found->second;
      out.lost += beyond_known(run->begin, end);
    } else if (run == new_run) {
      // The run in which they part was edited: its end may still be the same.
      int64_t suffix = 0;
      const int64_t limit = std::min<int64_t>(old_run->begin + int64_t{old_run->length} - std::max<int64_t>(out.position, old_run->begin),
                                              end - std::max<int64_t>(out.position, run->begin));
      const TokenId* a = old.tokens.data() + old_run->begin + old_run->length;
      const TokenId* b = now.tokens.data() + end;
      while (suffix < limit && a[-1 - suffix] == b[-1 - suffix]) ++suffix;
      out.lost += beyond_known(end - suffix, end);
    }
  }
  return out;
}

void BreakFinder::record(const PreparedRequest& old, const PreparedRequest& now, const Parting& parting) {
  const Edit edit = first_edit(old.conversation, now.conversation);
  std::string storage;
  const std::string_view system = system_text(now.conversation, storage);
  const std::string_view place = edit.segment.starts_with("message") ? std::string_view("message") : edit.segment;
  Breaker one;
  one.kind = edit.kind;
  one.segment = edit.segment;
  one.template_name = head(masked(head(system, kContextBytes)), kContextBytes);
  one.count = 1;
  one.lost_tokens = parting.lost;
  one.min_position = one.max_position = parting.position;
  one.lost_by_model[now.model] = parting.lost;
  one.example = text_diff(edit.old_text, edit.new_text, options_.redact);
  if (options_.redact) redact(one);
  const auto [at, fresh] = breakers_.try_emplace(fmt::format("{}|{}|{:016x}", break_name(one.kind), place.substr(0, place.find(' ')),
                                                             mask_key(head(system, kMaskBytes), 0)), one);
  if (fresh) return forget_least_costly();
  Breaker& sum = at->second;
  sum.count += 1;
  sum.lost_tokens += one.lost_tokens;
  sum.min_position = std::min(sum.min_position, one.min_position);
  sum.max_position = std::max(sum.max_position, one.max_position);
  sum.lost_by_model[now.model] += parting.lost;
}

void BreakFinder::append(Breaker breaker) {
  if (options_.redact) redact(breaker);
  const auto [at, fresh] = breakers_.try_emplace(fmt::format("{}|{}|{}", break_name(breaker.kind), breaker.segment.substr(0, breaker.segment.find(' ')),
                                                             breaker.template_name), breaker);
  if (fresh) return forget_least_costly();
  Breaker& sum = at->second;
  sum.count += breaker.count;
  sum.lost_tokens += breaker.lost_tokens;
  sum.min_position = std::min(sum.min_position, breaker.min_position);
  sum.max_position = std::max(sum.max_position, breaker.max_position);
  for (const auto& [model, lost] : breaker.lost_by_model) sum.lost_by_model[model] += lost;
}

void BreakFinder::forget_least_costly() {
  if (breakers_.size() <= kMaxBreakers) return;
  std::vector<std::map<std::string, Breaker>::iterator> all;
  for (auto at = breakers_.begin(); at != breakers_.end(); ++at) all.push_back(at);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a->second.lost_tokens > b->second.lost_tokens; });
  for (size_t i = kMaxBreakers / 2; i < all.size(); ++i) breakers_.erase(all[i]);
}

void BreakFinder::keep(PreparedRequest&& request, std::vector<uint64_t> keys) {
  size_t bytes = request.tokens.size() * sizeof(TokenId) + request.keys.size() * sizeof(PrefixKey) + request.runs.size() * sizeof(TokenRun) + 1024;
  for (const Message& message : request.conversation.messages) bytes += message.content.size() + message.reasoning.value_or("").size() + sizeof(Message);
  bytes += request.conversation.tools.size() * 2048;
  kept_.push_front({std::move(request), bytes, std::move(keys)});
  kept_bytes_ += bytes;
  for (const uint64_t key : kept_.front().keys) {
    if (key == 0) continue;
    const auto [at, fresh] = latest_.try_emplace(key, kept_.begin());
    if (!fresh) {
      const auto before = std::exchange(at->second, kept_.begin());
      if (--before->num_leading == 0) drop(before);
    }
    ++kept_.front().num_leading;
  }
  while (kept_bytes_ > options_.max_bytes && kept_.size() > 1) drop(std::prev(kept_.end()));
}

void BreakFinder::drop(std::list<Kept>::iterator kept) {
  for (const uint64_t key : kept->keys) {
    if (const auto at = latest_.find(key); at != latest_.end() && at->second == kept) latest_.erase(at);
  }
  kept_bytes_ -= kept->bytes;
  kept_.erase(kept);
}

void BreakFinder::add(PreparedRequest&& request, int64_t num_known_tokens) {
  if (request.tokens.empty() || request.conversation.messages.empty()) return;
  std::vector<uint64_t> keys = keys_of(request);
  const Kept* best = nullptr;
  Parting best_parting;
  std::vector<const Kept*> seen;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto at = latest_.find(keys[i]);
    if (keys[i] == 0 || at == latest_.end()) continue;
    const bool same_conversation = i < 2;
    if (std::find(seen.begin(), seen.end(), &*at->second) != seen.end()) continue;  // the first key expects most of it
    seen.push_back(&*at->second);
    const Parting one = parting(at->second->request, request, same_conversation, num_known_tokens);
    // The one that would have given most, had nothing been edited.
    if (best == nullptr || one.lost > best_parting.lost) {
      best = &*at->second;
      best_parting = one;
    }
  }
  if (best != nullptr && best_parting.lost >= options_.min_lost_tokens) record(best->request, request, best_parting);
  keep(std::move(request), std::move(keys));
}

std::vector<Breaker> BreakFinder::ranked() const {
  std::vector<Breaker> out;
  for (const auto& [key, breaker] : breakers_) out.push_back(breaker);
  std::stable_sort(out.begin(), out.end(), [](const Breaker& a, const Breaker& b) { return a.lost_tokens > b.lost_tokens; });
  return out;
}

}  // namespace deepinfer::trace
