#include "apps/terminal.h"

#include <cerrno>
#include <clocale>
#include <cwchar>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

namespace deepinfer::apps {
namespace {

void write_all(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // the terminal is gone; the next read says so
    at += static_cast<size_t>(n);
  }
}

size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// What is drawn for a text: raw mode needs a return with each newline, and a tab has no fixed width.
std::string drawable(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') out += "\r\n";
    else if (c == '\t') out += "    ";
    else out += c;
  }
  return out;
}

}  // namespace

size_t rows_below_first(const std::string& text, size_t width) {
  size_t rows = 0, column = 0;
  std::mbstate_t state{};
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\r' || text[at] == '\n') {
      rows += text[at] == '\n' ? 1 : 0;
      column = 0;
      ++at;
      continue;
    }
    wchar_t c = 0;
    const size_t n = std::mbrtowc(&c, text.data() + at, text.size() - at, &state);
    const bool valid = n != 0 && n <= text.size() - at;
    if (!valid) state = {};
    at += valid ? n : 1;
    const int columns = valid ? ::wcwidth(c) : 1;
    if (columns <= 0) continue;
    if (column + static_cast<size_t>(columns) > width) {
      ++rows;
      column = 0;
    }
    column += static_cast<size_t>(columns);
  }
  return rows;
}

std::optional<Terminal> Terminal::open() {
  if (!::isatty(STDIN_FILENO) || !::isatty(STDOUT_FILENO)) return std::nullopt;
  Terminal terminal;
  if (::tcgetattr(STDIN_FILENO, &terminal.original_) != 0) return std::nullopt;
  std::setlocale(LC_CTYPE, "");  // for the widths of characters
  return terminal;
}

Terminal::Terminal(Terminal&& other) noexcept
    : owner_(std::exchange(other.owner_, false)), original_(other.original_), input_(std::move(other.input_)), rows_drawn_(other.rows_drawn_) {}

Terminal::~Terminal() {
  if (owner_) raw_mode(false);
}

void Terminal::raw_mode(bool on) const {
  termios mode = original_;
  if (on) {
    mode.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | ISIG | IEXTEN);
    mode.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL);
    mode.c_cc[VMIN] = 1;
    mode.c_cc[VTIME] = 0;
  }
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &mode);
  write_all(on ? "\x1b[?2004h" : "\x1b[?2004l");  // bracketed paste
}

void Terminal::draw(const std::string& prompt) {
  const std::string text = drawable(prompt + input_.text());
  std::string out = rows_drawn_ > 0 ? "\x1b[" + std::to_string(rows_drawn_) + "A" : "";
  write_all(out + "\r\x1b[J" + text);
  rows_drawn_ = rows_below_first(text, terminal_width());
}

std::optional<std::string> Terminal::read_entry(const std::string& prompt) {
  raw_mode(true);
  rows_drawn_ = 0;
  draw(prompt);
  std::optional<std::string> entry;
  for (bool done = false; !done;) {
    char bytes[4096];
    const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    bool changed = false;
    for (ssize_t i = 0; i < n && !done; ++i) {
      switch (input_.feed(static_cast<unsigned char>(bytes[i]))) {
        case ChatInput::Event::kNone: break;
        case ChatInput::Event::kChanged: changed = true; break;
        case ChatInput::Event::kSubmit:
          entry = input_.text();
          done = true;
          break;
        case ChatInput::Event::kInterrupt:
          input_.clear(false);
          changed = true;
          break;
        case ChatInput::Event::kEnd: done = true; break;
      }
    }
    if (changed) draw(prompt);
  }
  input_.clear(entry.has_value());
  raw_mode(false);
  write_all("\n");
  return entry;
}

}  // namespace deepinfer::apps
