#include "io/system_error.h"

#include <cerrno>
#include <cstring>

namespace deepinfer::io {

Error system_error(const std::string& path, int number) {
  Code code = Code::kIo;
  if (number == ENOENT || number == ENOTDIR) code = Code::kNotFound;
  if (number == ENOSPC || number == EDQUOT || number == EFBIG) code = Code::kResourceExhausted;
  if (number == EROFS || number == EWOULDBLOCK) code = Code::kUnavailable;
  return Error{code, path + ": " + std::strerror(number)};
}

}  // namespace deepinfer::io
