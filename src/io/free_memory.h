// What the machine can still give this process.
#pragma once

#include <cstdint>

namespace deepinfer::io {

// MemAvailable of /proc/meminfo, or what is left of the control group's limit if that is less. 0: unknown.
uint64_t free_memory_bytes();

}  // namespace deepinfer::io
