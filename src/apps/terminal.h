// The terminal under a chat: raw mode while an entry is typed, the user's own mode otherwise. Reads keys into a ChatInput and draws
// the entry, over as many rows as it takes. One at a time; the destructor restores what it found.
#pragma once

#include <optional>
#include <string>
#include <termios.h>

#include "apps/chat_input.h"

namespace deepinfer::apps {

class Terminal {
 public:
  // For the terminal on stdin and stdout. Nothing if they are not one.
  static std::optional<Terminal> open();
  Terminal(Terminal&& other) noexcept;
  ~Terminal();

  // One entry, after `prompt`. Nothing at the end of the input (Ctrl-D, or the terminal is gone). Ctrl-C drops what was typed
  // and never ends the chat: it may come a moment after the answer that it was meant for.
  std::optional<std::string> read_entry(const std::string& prompt);

 private:
  Terminal() = default;
  void raw_mode(bool on) const;
  void draw(const std::string& prompt);

  bool owner_ = true;
  termios original_{};
  ChatInput input_;
  size_t rows_drawn_ = 0;  // rows of the entry above the cursor's
};

// Columns that `text` takes on a terminal of `width` columns, as rows: how often the cursor goes down. Escape-free text.
size_t rows_below_first(const std::string& text, size_t width);

}  // namespace deepinfer::apps
