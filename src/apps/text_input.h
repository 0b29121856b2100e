// Text that a command takes: from the command line, or from stdin where that says "-".
#pragma once

#include <string>

#include "base/result.h"

namespace deepinfer::apps {

constexpr size_t kMaxInputBytes = size_t{1} << 30;

// All of stdin. Errors: kIo, kResourceExhausted (more than kMaxInputBytes).
Result<std::string> read_stdin();

// `argument` itself, or stdin for "-".
Result<std::string> text_or_stdin(const std::string& argument);

}  // namespace deepinfer::apps
