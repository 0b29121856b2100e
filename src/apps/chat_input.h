// Keys to text: the bytes of a terminal in raw mode go in, an edited entry comes out. Knows UTF-8, bracketed paste (a paste of many
// lines is one entry, its newlines kept), erasing of a character, word or line, and earlier entries by the arrow keys. The cursor
// stays at the end: chat entries are short, and what needs more is written elsewhere and pasted.
// Pure: terminal.h does the reading and drawing. The alternatives that lost: the terminal's own line mode, which ends an entry at
// the first newline of a paste and cuts lines at 4,096 bytes; readline, whose licence does not fit.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace deepinfer::apps {

class ChatInput {
 public:
  enum class Event {
    kNone,       // nothing to draw
    kChanged,    // text() is to be drawn again
    kSubmit,     // text() is an entry; clear() begins the next
    kInterrupt,  // Ctrl-C
    kEnd,        // Ctrl-D on an empty entry
  };
  static constexpr size_t kMaxBytes = 4 << 20;  // what a paste may hold; more is dropped

  Event feed(unsigned char byte);
  const std::string& text() const { return text_; }
  // The next entry; `remember` keeps this one for the arrow keys.
  void clear(bool remember);

 private:
  Event feed_key(unsigned char byte);
  Event finish_escape();
  Event recall(int step);
  void erase_character();
  void erase_word();

  std::string text_, escape_;
  bool in_escape_ = false, in_paste_ = false;
  std::vector<std::string> history_;
  size_t history_at_ = 0;  // history_.size(): the entry that is being written
};

}  // namespace deepinfer::apps
