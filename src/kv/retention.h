// kv/retention.h: classes of blocks by how long they are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace deepinfer::kv {

struct RetentionClass {
  std::string name;     // 1 to 15 characters of a-z, 0-9, _ and -
  int64_t seconds = 0;  // how long a block is kept on disk at least, a minute or more; its segment goes at most a bucket later
};
constexpr size_t kMaxRetentionClasses = 64;

// Errors: kInvalidArgument, with what is wrong.
Result<> check_retention(std::span<const RetentionClass> classes);

}  // namespace deepinfer::kv
