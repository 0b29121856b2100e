#include "io/disk.h"

#include <atomic>
#include <unistd.h>

namespace deepinfer::io {

Result<std::string> read_file(Disk& disk, const std::string& path, size_t max_bytes) {
  DI_TRY(const std::unique_ptr<File> file, disk.open(path, Disk::Mode::kRead));
  DI_TRY(const FileStatus status, file->status());
  if (status.size > max_bytes) return Error{Code::kCorruption, path + ": longer than " + std::to_string(max_bytes) + " bytes"};
  std::string content(static_cast<size_t>(status.size), '\0');
  DI_TRY(const size_t length, file->read(0, std::as_writable_bytes(std::span(content))));
  content.resize(length);
  return content;
}

Result<> replace_file(Disk& disk, const std::string& path, std::string_view content) {
  static std::atomic<uint64_t> counter{0};  // two threads may replace the same file
  const std::string temporary = path + ".new." + std::to_string(::getpid()) + "." + std::to_string(counter.fetch_add(1));
  {
    DI_TRY(const std::unique_ptr<File> file, disk.open(temporary, Disk::Mode::kCreate));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(content));
    Result<> written = file->write(0, {&bytes, 1});
    if (written) written = file->sync();
    if (!written) {
      (void)disk.remove(temporary);
      return written;
    }
  }
  Result<> renamed = disk.rename(temporary, path);
  if (!renamed) (void)disk.remove(temporary);
  return renamed;
}

}  // namespace deepinfer::io
