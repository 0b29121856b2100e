// A file that is written in one go and appears under its name only when it is whole: until finish() the bytes lie in `path`.part, which
// is removed if finish() is not reached. Errors are kept until finish(), so that a writer may write and look once.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer::io {

class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  bool ok() const { return file_ != nullptr && error_ == 0; }  // false: further writing is in vain
  // Errors: kIo, naming the file and the operating system's reason.
  Result<> finish();

 private:
  std::string path_, temporary_;
  std::FILE* file_;
  int error_ = 0;
};

}  // namespace deepinfer::io
