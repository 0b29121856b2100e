// io/system_error.h: what the operating system said of a path, as an error.
#pragma once

#include <string>

#include "base/result.h"

namespace deepinfer::io {

// number: an errno. kNotFound, kResourceExhausted (no space, quota), kUnavailable (read-only, locked), kIo (everything else).
Error system_error(const std::string& path, int number);

}  // namespace deepinfer::io
