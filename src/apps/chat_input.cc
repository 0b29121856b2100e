#include "apps/chat_input.h"

namespace deepinfer::apps {
namespace {

constexpr unsigned char kCtrlC = 3, kCtrlD = 4, kBackspace = 8, kTab = 9, kNewline = 10, kReturn = 13, kCtrlU = 21, kCtrlW = 23, kEscape = 27,
                        kDelete = 127;
constexpr size_t kMaxEscapeBytes = 16;
constexpr size_t kMaxHistory = 200;

}  // namespace

ChatInput::Event ChatInput::feed(unsigned char byte) {
  if (in_escape_) {
    escape_ += static_cast<char>(byte);
    const bool introducer = escape_.size() == 1 && (byte == '[' || byte == 'O');
    const bool final_byte = byte >= 0x40 && byte <= 0x7e;
    if ((introducer || !final_byte) && escape_.size() < kMaxEscapeBytes) return Event::kNone;
    return finish_escape();
  }
  if (byte == kEscape) {
    in_escape_ = true;
    escape_.clear();
    return Event::kNone;
  }
  if (in_paste_) {
    if (text_.size() >= kMaxBytes) return Event::kNone;
    // Terminals send the line ends of a paste as returns.
    if (byte == kReturn) text_ += '\n';
    else if (byte >= 32 || byte == kTab || byte == kNewline) text_ += static_cast<char>(byte);
    return Event::kNone;  // drawn when the paste ends
  }
  return feed_key(byte);
}

ChatInput::Event ChatInput::feed_key(unsigned char byte) {
  switch (byte) {
    case kCtrlC: return Event::kInterrupt;
    case kCtrlD: return text_.empty() ? Event::kEnd : Event::kNone;
    case kReturn:
    case kNewline: return Event::kSubmit;
    case kBackspace:
    case kDelete: erase_character(); return Event::kChanged;
    case kCtrlW: erase_word(); return Event::kChanged;
    case kCtrlU: text_.clear(); return Event::kChanged;
    default: break;
  }
  if ((byte < 32 && byte != kTab) || text_.size() >= kMaxBytes) return Event::kNone;
  text_ += static_cast<char>(byte);
  return Event::kChanged;
}

ChatInput::Event ChatInput::finish_escape() {
  in_escape_ = false;
  if (escape_ == "[200~") {
    in_paste_ = true;
    return Event::kNone;
  }
  if (escape_ == "[201~") {
    in_paste_ = false;
    return Event::kChanged;
  }
  if (in_paste_) return Event::kNone;
  if (escape_ == "[A" || escape_ == "OA") return recall(-1);
  if (escape_ == "[B" || escape_ == "OB") return recall(+1);
  return Event::kNone;
}

ChatInput::Event ChatInput::recall(int step) {
  if (step < 0 && history_at_ == 0) return Event::kNone;
  if (step > 0 && history_at_ >= history_.size()) return Event::kNone;
  history_at_ = step < 0 ? history_at_ - 1 : history_at_ + 1;
  text_ = history_at_ < history_.size() ? history_[history_at_] : "";
  return Event::kChanged;
}

void ChatInput::clear(bool remember) {
  if (remember && !text_.empty()) history_.push_back(text_);
  if (history_.size() > kMaxHistory) history_.erase(history_.begin());
  history_at_ = history_.size();
  text_.clear();
}

void ChatInput::erase_character() {
  while (!text_.empty()) {
    const auto byte = static_cast<unsigned char>(text_.back());
    text_.pop_back();
    if ((byte & 0xc0) != 0x80) return;  // the first byte of a code point is gone
  }
}

void ChatInput::erase_word() {
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\t'; };
  while (!text_.empty() && is_space(text_.back())) text_.pop_back();
  while (!text_.empty() && !is_space(text_.back())) text_.pop_back();
}

}  // namespace deepinfer::apps
