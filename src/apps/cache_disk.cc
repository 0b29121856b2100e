#include "apps/cache_disk.h"

#include "io/linux_disk.h"
#include "io/s3_disk.h"

namespace deepinfer::apps {

Result<std::shared_ptr<io::Disk>> cache_disk(const std::string& dir) {
  if (!io::is_s3_url(dir)) return std::shared_ptr<io::Disk>(std::make_shared<io::LinuxDisk>());
  DI_TRY(io::S3Options options, io::s3_options(dir));
  return std::shared_ptr<io::Disk>(std::make_shared<io::S3Disk>(std::move(options)));
}

}  // namespace deepinfer::apps
