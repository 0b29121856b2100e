// Sizes and times as people type them: "8GiB", "1.5GB", "4096", "72h", "250ms". Exact: what does not fit or parse is an error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer {

// Bytes. Suffixes (any case): none or B, KB MB GB TB (powers of 1000), KiB MiB GiB TiB and K M G T (powers of 1024).
Result<uint64_t> parse_size(std::string_view text);
// Nanoseconds. Suffixes ns us ms s m h d; a bare number is seconds.
Result<int64_t> parse_duration(std::string_view text);
// "512 B", "1.50 GiB": three significant digits.
std::string format_size(uint64_t bytes);

}  // namespace deepinfer
