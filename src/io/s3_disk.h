// io/s3_disk.h: Disk in object storage: a path is s3://BUCKET/KEY, a folder is what keys have before a slash. A new file is written in memory and
// becomes an object, whole, when it is made durable (sync()); objects are read by ranges. What object storage does not have is missing: no
// locks (kUnsupported), no appending to what is there, touch() changes nothing, and allocated bytes are the object's.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "io/disk.h"
#include "io/s3_bucket.h"

namespace deepinfer::io {

// The bucket of "s3://BUCKET/PREFIX", with keys and place from the variables of the environment that all S3 tools know: AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION (us-east-1), AWS_ENDPOINT_URL (Amazon's of that region). kInvalidArgument.
Result<S3Options> s3_options(const std::string& url);
bool is_s3_url(const std::string& path);

class S3Disk final : public Disk {
 public:
  explicit S3Disk(S3Options options);

  Result<std::unique_ptr<File>> open(const std::string& path, Mode mode) override;
  Result<> rename(const std::string& from, const std::string& to) override;
  Result<> remove(const std::string& path) override;
  Result<> touch(const std::string& path, int64_t unix_s) override;
  // What list() said of an object a moment ago is not asked again.
  Result<FileStatus> status(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Result<> make_folder(const std::string& path) override;
  Result<> sync_folder(const std::string& path) override;
  Result<std::unique_ptr<File>> lock(const std::string& path) override;

 private:
  struct Listed {
    FileStatus status;
    int64_t at_ns;
  };
  class NewFile;
  class ObjectFile;

  Result<std::string> key_of(const std::string& path) const;
  void forget(const std::string& key);

  const std::shared_ptr<S3Bucket> bucket_;
  const SteadyClock clock_{};
  Mutex mu_;
  std::map<std::string, Listed> listed_ GUARDED_BY(mu_);  // by key; of folders that were listed last
};

}  // namespace deepinfer::io
