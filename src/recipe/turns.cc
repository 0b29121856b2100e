#include "recipe/turns.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <utility>

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kSeparator = "\n\n";

using Texts = std::deque<std::string>;

Turn make_turn(const Message& message, Role role, bool images, Texts& texts) {
  Turn turn{.role = role};
  if (role == Role::kAssistant || role == Role::kTool || message.task != Task::kNone) turn.message = &message;
  if (images || message.images.empty()) {
    turn.content = message.content;
    turn.images = message.images;
    return turn;
  }
  turn.joined = &texts.emplace_back();
  size_t done = 0;
  for (const PlacedImage& placed : message.images) {
    turn.joined->append(message.content, done, placed.offset - done).append(kUnsupportedImage);
    done = placed.offset;
  }
  turn.joined->append(message.content, done);
  turn.content = *turn.joined;
  return turn;
}

bool is_empty(const Turn& turn) { return turn.content.empty() && turn.images.empty(); }

void append(const Turn& from, Turn& to, bool joins_empty, Texts& texts) {
  const bool separate = joins_empty || (!is_empty(to) && !is_empty(from));
  if (to.joined == nullptr) to.joined = &texts.emplace_back(to.content);
  if (separate) *to.joined += kSeparator;
  for (PlacedImage placed : from.images) {
    placed.offset += to.joined->size();
    to.images.push_back(placed);
  }
  *to.joined += from.content;
  to.content = *to.joined;
  if (from.message != nullptr) to.message = from.message;
}

// Adds a system message where the dialect wants it. `leading`: nothing but system messages came before.
void place_system(Turn turn, SystemPlacement placement, bool leading, std::vector<Turn>& out, Texts& texts) {
  if (is_empty(turn)) return;
  const bool front = placement == SystemPlacement::kFront || (placement == SystemPlacement::kLeading && leading);
  if (placement == SystemPlacement::kLeading && !leading) turn.role = Role::kUser;
  if (!front || out.empty() || out.front().role != Role::kSystem) {
    out.insert(front ? out.begin() : out.end(), std::move(turn));
  } else {
    append(turn, out.front(), false, texts);
  }
}

void merge_users(const DialectRules& rules, std::vector<Turn>& turns, Texts& texts) {
  std::vector<Turn> out;
  out.reserve(turns.size());
  for (Turn& turn : turns) {
    const bool merges = turn.role == Role::kUser && !out.empty() && out.back().role == Role::kUser && out.back().message == nullptr &&
                        (turn.message == nullptr || turn.message->task != Task::kReadUrl);
    if (merges) {
      append(turn, out.back(), rules.joins_empty_user_texts, texts);
    } else {
      out.push_back(std::move(turn));
    }
  }
  turns = std::move(out);
}

// An unbroken run of user and tool turns: the tool turns change places among themselves. An unknown id counts as the first call's.
void sort_results(std::span<Turn> run, std::span<const ToolCall> calls) {
  std::vector<Turn*> slots;
  for (Turn& turn : run) {
    if (turn.role == Role::kTool) slots.push_back(&turn);
  }
  if (slots.size() < 2) return;
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = 0; i < calls.size(); ++i) places.emplace(calls[i].id, i);
  std::vector<std::pair<size_t, Turn>> results;
  for (Turn* slot : slots) {
    const auto at = places.find(slot->message->tool_call_id);
    results.emplace_back(at == places.end() ? 0 : at->second, std::move(*slot));
  }
  std::stable_sort(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < slots.size(); ++i) *slots[i] = std::move(results[i].second);
}

void sort_all_results(std::vector<Turn>& turns) {
  std::span<const ToolCall> calls;
  for (size_t i = 0; i < turns.size();) {
    if (turns[i].role == Role::kAssistant && !turns[i].message->tool_calls.empty()) calls = turns[i].message->tool_calls;
    size_t end = i;
    while (end < turns.size() && (turns[end].role == Role::kUser || turns[end].role == Role::kTool)) ++end;
    if (end > i) sort_results(std::span(turns).subspan(i, end - i), calls);
    i = std::max(end, i + 1);
  }
}

}  // namespace

std::vector<Turn> make_turns(const Conversation& conversation, const DialectRules& rules, DeveloperAs developer, bool needs_system, Texts& texts) {
  std::vector<Turn> turns;
  turns.reserve(conversation.messages.size() + 1);
  bool leading = true;
  for (const Message& message : conversation.messages) {
    Role role = message.role;
    if (role == Role::kDeveloper) role = developer == DeveloperAs::kSystem ? Role::kSystem : Role::kUser;
    if (role == Role::kSystem) {
      place_system(make_turn(message, role, rules.images, texts), rules.system, leading, turns, texts);
    } else {
      turns.push_back(make_turn(message, role, rules.images, texts));
      leading = false;
    }
  }
  merge_users(rules, turns, texts);
  sort_all_results(turns);
  if (needs_system && (turns.empty() || turns.front().role != Role::kSystem)) turns.insert(turns.begin(), Turn{.role = Role::kSystem});
  return turns;
}

}  // namespace deepinfer::recipe
