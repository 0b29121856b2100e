// What `deepinfer bench cache` measures: the block store beside the disk that it stands on, and how long it takes to open one of millions of
// blocks. In folders of their own below the one that is given, which are removed again.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace deepinfer::apps {

// A folder that goes with everything in it.
class ScratchFolder {
 public:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

struct CacheIoResult {  // bytes a second
  double raw_write = 0, raw_read = 0;      // of a plain file past the page cache, in pieces of 4 MiB, made durable
  double store_write = 0, store_read = 0;  // blocks of kIoBlockBytes, from publish() to durable, from fetch() to checked rows
  double sealed_write = 0, sealed_read = 0;  // the same with encryption
};
constexpr int64_t kIoBlockBytes = 113'920;  // a block of DeepSeek-V4.1-Flash

// One after the other, so that the same minute of a shared machine falls on them. Errors: those of the disk; kInternal (a block was lost).
Result<CacheIoResult> measure_cache_io(const std::string& dir, uint64_t num_bytes);

struct CacheStartResult {
  uint64_t num_blocks = 0, num_segments = 0, index_bytes = 0;
  double open_s = 0, open_cpu_s = 0;  // CPU of all threads together
  double lookups_per_s = 0;           // one thread, keys in random order
};
// A store of so many blocks of kIoBlockBytes: segments of 64 MiB with headers and footers and holes for rows, so that what a start reads is all there
// and ten million fit a small disk.
Result<CacheStartResult> measure_cache_start(const std::string& dir, uint64_t num_blocks);

}  // namespace deepinfer::apps
