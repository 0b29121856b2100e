#include "io/s3_disk.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <string_view>
#include <utility>

namespace deepinfer::io {
namespace {

constexpr std::string_view kAddressScheme = "s3://";
constexpr int64_t kListedNs = 10'000'000'000;  // for so long a listing is believed

FileStatus status_of(const S3Bucket::Object& object) { return {.size = object.size, .allocated_bytes = object.size, .changed_unix_s = object.modified_unix_s}; }

std::string environment(const char* name, const char* fallback = "") {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

}  // namespace

bool is_s3_url(const std::string& path) { return path.starts_with(kAddressScheme); }

Result<S3Options> s3_options(const std::string& url) {
  S3Options options;
  const std::string rest = is_s3_url(url) ? url.substr(kAddressScheme.size()) : "";
  const size_t slash = rest.find('/');
  options.bucket = rest.substr(0, slash);
  const bool has_prefix = slash != std::string::npos && slash + 1 < rest.size() && rest.back() != '/';
  if (options.bucket.empty() || !has_prefix) return Error{Code::kInvalidArgument, fmt::format("'{}' is not s3://BUCKET/PREFIX", url)};
  options.region = environment("AWS_REGION", "us-east-1");
  options.endpoint = environment("AWS_ENDPOINT_URL", ("https://s3." + options.region + ".amazonaws.com").c_str());
  if (!options.endpoint.starts_with("http://") && !options.endpoint.starts_with("https://")) return Error{Code::kInvalidArgument, "AWS_ENDPOINT_URL is no http:// or https:// address"};
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  options.access_key = environment("AWS_ACCESS_KEY_ID");
  options.secret_key = environment("AWS_SECRET_ACCESS_KEY");
  options.session_token = environment("AWS_SESSION_TOKEN");
  if (options.access_key.empty() != options.secret_key.empty()) return Error{Code::kInvalidArgument, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are needed together"};
  return options;
}

// A file that is being written, by one thread.
class S3Disk::NewFile final : public File {
 public:
  NewFile(std::shared_ptr<S3Bucket> bucket, std::string key) : bucket_(std::move(bucket)), key_(std::move(key)) {}

  Result<size_t> read(uint64_t offset, std::span<std::byte> out) override {
    const size_t n = std::min<size_t>(out.size(), content_.size() - std::min<uint64_t>(offset, content_.size()));
    std::copy_n(content_.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(offset, content_.size())), n, out.begin());
    return n;
  }
  Result<> write(uint64_t offset, std::span<const std::span<const std::byte>> pieces) override {
    for (const std::span<const std::byte> piece : pieces) {
      if (content_.size() < offset + piece.size()) content_.resize(offset + piece.size());
      std::copy(piece.begin(), piece.end(), content_.begin() + static_cast<ptrdiff_t>(offset));
      offset += piece.size();
    }
    changed_ = true;
    return {};
  }
  Result<> sync() override {
    if (!changed_) return {};
    DI_TRY(bucket_->put(key_, content_));
    changed_ = false;
    return {};
  }
  Result<FileStatus> status() override { return FileStatus{.size = content_.size(), .allocated_bytes = content_.size()}; }
  Result<> truncate(uint64_t size) override {
    content_.resize(size);
    changed_ = true;
    return {};
  }

 private:
  const std::shared_ptr<S3Bucket> bucket_;
  const std::string key_;
  std::vector<std::byte> content_;
  bool changed_ = true;  // an empty file is one too
};

class S3Disk::ObjectFile final : public File {
 public:
  ObjectFile(std::shared_ptr<S3Bucket> bucket, std::string key, FileStatus status) : bucket_(std::move(bucket)), key_(std::move(key)), status_(status) {}

  Result<size_t> read(uint64_t offset, std::span<std::byte> out) override {
    if (offset >= status_.size) return size_t{0};
    return bucket_->read(key_, offset, out.first(static_cast<size_t>(std::min<uint64_t>(out.size(), status_.size - offset))));
  }
  Result<> write(uint64_t, std::span<const std::span<const std::byte>>) override { return Error{Code::kUnsupported, key_ + ": opened for reading"}; }
  Result<> sync() override { return {}; }
  Result<FileStatus> status() override { return status_; }
  Result<> truncate(uint64_t) override { return Error{Code::kUnsupported, key_ + ": opened for reading"}; }

 private:
  const std::shared_ptr<S3Bucket> bucket_;
  const std::string key_;
  const FileStatus status_;
};

S3Disk::S3Disk(S3Options options) : bucket_(std::make_shared<S3Bucket>(std::move(options))) {}

Result<std::string> S3Disk::key_of(const std::string& path) const {
  const std::string root = std::string(kAddressScheme) + bucket_->name() + "/";
  if (!path.starts_with(root)) return Error{Code::kInvalidArgument, path + ": not in the bucket " + bucket_->name()};
  return path.substr(root.size());
}

void S3Disk::forget(const std::string& key) {
  const MutexLock lock(mu_);
  listed_.erase(key);
}

Result<std::unique_ptr<File>> S3Disk::open(const std::string& path, Mode mode) {
  DI_TRY(std::string key, key_of(path));
  const Result<FileStatus> there = status(path);
  if (!there && there.error().code != Code::kNotFound) return there.error();
  if (mode == Mode::kCreate || mode == Mode::kCreateDirect) {
    if (there) return Error{Code::kIo, path + ": is there already"};
    return std::unique_ptr<File>(std::make_unique<NewFile>(bucket_, std::move(key)));
  }
  if (!there) return there.error();
  return std::unique_ptr<File>(std::make_unique<ObjectFile>(bucket_, std::move(key), *there));
}

Result<> S3Disk::rename(const std::string& from, const std::string& to) {
  DI_TRY(const std::string from_key, key_of(from));
  DI_TRY(const std::string to_key, key_of(to));
  forget(from_key);
  forget(to_key);
  DI_TRY(bucket_->copy(from_key, to_key));
  return bucket_->remove(from_key);
}

Result<> S3Disk::remove(const std::string& path) {
  DI_TRY(const std::string key, key_of(path));
  forget(key);
  return bucket_->remove(key);
}

Result<> S3Disk::touch(const std::string& /*path*/, int64_t /*unix_s*/) { return {}; }

Result<FileStatus> S3Disk::status(const std::string& path) {
  DI_TRY(const std::string key, key_of(path));
  {
    const MutexLock lock(mu_);
    const auto it = listed_.find(key);
    if (it != listed_.end() && clock_.now_ns() - it->second.at_ns < kListedNs) return it->second.status;
  }
  DI_TRY(const S3Bucket::Object object, bucket_->status(key));
  return status_of(object);
}

Result<std::vector<std::string>> S3Disk::list(const std::string& folder) {
  DI_TRY(std::string prefix, key_of(folder + "/"));
  DI_TRY(const S3Bucket::Listing listing, bucket_->list(prefix));
  std::vector<std::string> names;
  const MutexLock lock(mu_);
  const int64_t now = clock_.now_ns();
  std::erase_if(listed_, [&](const auto& one) { return one.first.starts_with(prefix) || now - one.second.at_ns >= kListedNs; });
  for (const S3Bucket::Object& object : listing.objects) {
    if (object.key.size() <= prefix.size()) continue;  // a "folder" that somebody made
    names.push_back(object.key.substr(prefix.size()));
    listed_[object.key] = {.status = status_of(object), .at_ns = now};
  }
  for (const std::string& below : listing.prefixes) {
    if (below.size() > prefix.size() + 1) names.push_back(below.substr(prefix.size(), below.size() - prefix.size() - 1));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<> S3Disk::make_folder(const std::string& /*path*/) { return {}; }
Result<> S3Disk::sync_folder(const std::string& /*path*/) { return {}; }
Result<std::unique_ptr<File>> S3Disk::lock(const std::string& path) { return Error{Code::kUnsupported, path + ": object storage has no locks"}; }

}  // namespace deepinfer::io
