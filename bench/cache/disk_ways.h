// Ways to move megabytes past the page cache: one request after the other, several threads, io_uring. What docs/decisions/store-io.md
// was decided on.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace deepinfer::bench {

struct DiskWay {
  std::string name;
  std::vector<double> write_bytes_per_s, read_bytes_per_s;  // one a round
};
// A file of num_bytes in `folder`, written (and made durable at the end) and read in pieces of 4 MiB, all ways in turn in every round.
// Errors: kIo.
Result<std::vector<DiskWay>> measure_disk_ways(const std::string& folder, uint64_t num_bytes, int num_rounds);

}  // namespace deepinfer::bench
