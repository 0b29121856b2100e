// Where a cache directory lies: on a file system, or in object storage (s3://BUCKET/PREFIX).
#pragma once

#include <memory>
#include <string>

#include "io/disk.h"

namespace deepinfer::apps {

// Errors: kInvalidArgument (of an s3:// address or what the environment says of it).
Result<std::shared_ptr<io::Disk>> cache_disk(const std::string& dir);

}  // namespace deepinfer::apps
