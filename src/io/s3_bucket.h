// io/s3_bucket.h: a bucket of S3-compatible object storage, over libcurl, which signs the requests (SigV4). One request a call, but long objects,
// which go up in parts, and listings, which come in pages. Thread-safe: any number of calls at a time; each takes a bounded time.
//
// Errors: kNotFound (no such object or bucket), kUnavailable (not allowed), kResourceExhausted (full), kIo (everything else: no connection, too
// slow, an answer that makes no sense). Nothing is tried twice: a caller that can do without is better served by a quick no.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_annotations.h"

namespace deepinfer::io {

struct S3Options {
  std::string endpoint;  // "https://s3.eu-central-1.amazonaws.com", "http://127.0.0.1:9000": the bucket is the path's first part
  std::string region, bucket;
  std::string access_key, secret_key, session_token;  // empty: requests are not signed
  int64_t connect_ms = 2'000, whole_ms = 60'000;      // the longest waits: for a connection, for a request
  size_t part_bytes = size_t{16} << 20;               // longer objects go up in parts of this size; S3 wants 5 MiB at least
};

class S3Bucket {
 public:
  explicit S3Bucket(S3Options options);
  ~S3Bucket();
  S3Bucket(const S3Bucket&) = delete;
  S3Bucket& operator=(const S3Bucket&) = delete;

  struct Object {
    std::string key;
    uint64_t size = 0;
    int64_t modified_unix_s = 0;
  };
  struct Listing {
    std::vector<Object> objects;        // sorted by key
    std::vector<std::string> prefixes;  // "folders": up to and with the next /
  };

  // Bytes from `offset` on; returns how many there were: less only at the end of the object.
  Result<size_t> read(const std::string& key, uint64_t offset, std::span<std::byte> out);
  Result<Object> status(const std::string& key);
  // The object is there as a whole, or as it was before.
  Result<> put(const std::string& key, std::span<const std::byte> content);
  Result<> copy(const std::string& from, const std::string& to);
  Result<> remove(const std::string& key);  // also one that is not there
  Result<Listing> list(const std::string& prefix);

  const std::string& name() const { return options_.bucket; }

 private:
  struct Call;
  struct Reply;
  class Handle;

  Result<Reply> send(const Call& call);
  Result<> put_in_parts(const std::string& key, std::span<const std::byte> content);
  Result<std::string> put_part(const std::string& key, const std::string& upload_id, size_t number, std::span<const std::byte> part);
  std::string path_of(const std::string& key) const;

  const S3Options options_;
  Mutex mu_;
  std::vector<void*> idle_ GUARDED_BY(mu_);  // curl handles, with their connections
};

}  // namespace deepinfer::io
