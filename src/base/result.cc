#include "base/result.h"

namespace deepinfer {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return "invalid_argument";
    case Code::kNotFound: return "not_found";
    case Code::kCorruption: return "corruption";
    case Code::kUnsupported: return "unsupported";
    case Code::kResourceExhausted: return "resource_exhausted";
    case Code::kUnavailable: return "unavailable";
    case Code::kCancelled: return "cancelled";
    case Code::kDeadlineExceeded: return "deadline_exceeded";
    case Code::kIo: return "io";
    case Code::kInternal: return "internal";
  }
  return "unknown";
}

}  // namespace deepinfer
