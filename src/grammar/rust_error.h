// Errors of the Rust library's grammar functions. For the sources of this folder.
#pragma once

#include <deepinfer_rust_buffer.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer::grammar {

// Messages quote what a client wrote, which may be long: a pointer to the deepest schema that is honoured fits. Cut between code points.
inline std::string clipped(std::string_view message) {
  constexpr size_t kMaxBytes = 2000;
  if (message.size() <= kMaxBytes) return std::string(message);
  size_t end = kMaxBytes;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
  return std::string(message.substr(0, end)) + "…";
}

inline Result<> to_result(int32_t status, const RustBuffer& error) {
  switch (status) {
    case DI_GRAMMAR_OK: return {};
    case DI_GRAMMAR_INVALID: return Error{Code::kInvalidArgument, clipped(error.text())};
    case DI_GRAMMAR_FAILED: return Error{Code::kResourceExhausted, clipped(error.text())};
    default: return Error{Code::kInternal, clipped(error.text())};
  }
}

}  // namespace deepinfer::grammar
