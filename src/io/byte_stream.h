// Bytes of a file or of stdin in order, decompressed on the way: gzip and Zstandard are told by their first bytes, never by a name.
// Several members or frames in a row are one stream. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace deepinfer::io {

class ByteStream {
 public:
  // "-" is stdin. Errors: kNotFound, kIo (a folder, no permission).
  static Result<std::unique_ptr<ByteStream>> open(const std::string& path);
  virtual ~ByteStream() = default;

  // Fills `out` from its beginning; less than its size only at the end of the stream, 0 at the end.
  // Errors: kIo, kCorruption (compressed bytes that break their format or stop in the middle; what came before was delivered).
  virtual Result<size_t> read(std::span<char> out) = 0;
  // Bytes of the file consumed so far, before decompression: for progress.
  virtual uint64_t position() const = 0;
};

}  // namespace deepinfer::io
