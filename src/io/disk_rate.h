// How fast a disk reads, and how much this process has read from disks: what a benchmark of weights beyond memory is compared with.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace deepinfer::io {

// Bytes a second of large sequential reads around the system's cache, several under way: over the first `max_bytes` of a file.
// Errors: kNotFound, kIo (also: the file system has no direct reads), kInvalidArgument (an empty file).
Result<double> measure_disk_rate(const std::string& path, int64_t max_bytes);

// Bytes that this process has caused to be read from disks so far; 0 if the system does not say. (Read-ahead counts when it is asked for.)
int64_t bytes_read_from_disk();

}  // namespace deepinfer::io
