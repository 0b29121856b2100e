#include "io/output_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

namespace deepinfer::io {

OutputFile::OutputFile(const std::string& path) : path_(path), temporary_(path + ".part"), file_(std::fopen(temporary_.c_str(), "wb")) {
  if (file_ == nullptr) error_ = errno;
}

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::remove(temporary_.c_str());
}

void OutputFile::write(const void* data, size_t size) {
  if (ok() && size > 0 && std::fwrite(data, 1, size, file_) != size) error_ = errno;
}

Result<> OutputFile::finish() {
  if (ok() && std::fflush(file_) != 0) error_ = errno;
  if (ok() && std::rename(temporary_.c_str(), path_.c_str()) != 0) error_ = errno;
  if (!ok()) return Error{Code::kIo, temporary_ + ": " + std::strerror(error_)};
  std::fclose(std::exchange(file_, nullptr));
  return {};
}

}  // namespace deepinfer::io
