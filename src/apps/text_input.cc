#include "apps/text_input.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>

namespace deepinfer::apps {

Result<std::string> read_stdin() {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{Code::kIo, fmt::format("stdin: {}", std::strerror(errno))};
    if (n == 0) return text;
    if (text.size() + static_cast<size_t>(n) > kMaxInputBytes) return Error{Code::kResourceExhausted, fmt::format("stdin holds more than {} bytes", kMaxInputBytes)};
    text.append(buffer, static_cast<size_t>(n));
  }
}

Result<std::string> text_or_stdin(const std::string& argument) {
  if (argument == "-") return read_stdin();
  return argument;
}

}  // namespace deepinfer::apps
