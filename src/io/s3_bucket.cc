#include "io/s3_bucket.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <curl/curl.h>
#include <fmt/format.h>
#include <pugixml.hpp>
#include <sodium.h>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "io/no_sigpipe.h"

namespace deepinfer::io {
namespace {

constexpr size_t kMaxTextBytes = size_t{4} << 20;  // of an answer that is no object; a page of a listing has 1000 keys of at most 1 KiB
constexpr int kMaxPages = 10'000;
constexpr long kNothingThere = 416;  // no byte of the range

std::string sha256_hex(std::span<const std::byte> bytes) {
  Digest256 digest;
  static_assert(sizeof(digest.bytes) == crypto_hash_sha256_BYTES);
  crypto_hash_sha256(digest.bytes.data(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  return digest.hex();
}

// As SigV4 wants it, so that what is signed is what is sent.
std::string encoded(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '~';
    if (plain || (c == '/' && keep_slashes)) {
      out.push_back(c);
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

// "2026-11-30T08:00:00.000Z"; 0 if it is no time.
int64_t parse_iso_time(const char* text) {
  std::tm tm{};
  return ::strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) == nullptr ? 0 : ::timegm(&tm);
}

Error error_of(long status, const std::string& what) {
  Code code = Code::kIo;
  if (status == 404) code = Code::kNotFound;
  if (status == 401 || status == 403) code = Code::kUnavailable;
  if (status == 507) code = Code::kResourceExhausted;
  return {code, what};
}

}  // namespace

struct S3Bucket::Call {
  const char* method;
  std::string path;                      // encoded
  std::string query = {};                // encoded, its names in order
  std::span<const std::byte> body = {};
  std::vector<std::string> headers = {};
  std::span<std::byte> sink = {};        // where an object goes
  uint64_t offset = 0;                   // of the sink in the object
};

struct S3Bucket::Reply {
  long status = 0;
  std::string text;       // of what is no object
  size_t num_bytes = 0;   // that came into the sink
  std::string etag;
  curl_off_t length = -1;
  int64_t modified_unix_s = 0;
  std::span<std::byte> sink;
  std::span<const std::byte> body;
  size_t num_sent = 0;
};

// A curl handle from the stock, and back.
class S3Bucket::Handle {
 public:
  explicit Handle(S3Bucket& bucket) : bucket_(bucket) {
    {
      const MutexLock lock(bucket.mu_);
      if (!bucket.idle_.empty()) {
        curl_ = bucket.idle_.back();
        bucket.idle_.pop_back();
      }
    }
    if (curl_ == nullptr) curl_ = ::curl_easy_init();
    CHECK(curl_ != nullptr);
  }
  ~Handle() {
    ::curl_slist_free_all(headers_);
    ::curl_easy_reset(curl_);
    const MutexLock lock(bucket_.mu_);
    bucket_.idle_.push_back(curl_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  template <class T>
  void set(CURLoption option, T value) {
    const CURLcode done = (curl_easy_setopt)(curl_, option, value);  // not the macro, which wants literals
    CHECK(done == CURLE_OK);
  }
  void add_header(const std::string& line) { headers_ = ::curl_slist_append(headers_, line.c_str()); }
  CURL* get() const { return curl_; }
  curl_slist* headers() const { return headers_; }

 private:
  S3Bucket& bucket_;
  CURL* curl_ = nullptr;
  curl_slist* headers_ = nullptr;
};

S3Bucket::S3Bucket(S3Options options) : options_(std::move(options)) {
  static const CURLcode started = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  CHECK(started == CURLE_OK);
}

S3Bucket::~S3Bucket() {
  const MutexLock lock(mu_);
  for (void* curl : idle_) ::curl_easy_cleanup(curl);
}

std::string S3Bucket::path_of(const std::string& key) const { return "/" + encoded(options_.bucket, false) + (key.empty() ? "" : "/" + encoded(key, true)); }

Result<S3Bucket::Reply> S3Bucket::send(const Call& call) {
  const NoSigpipe guard;
  Handle curl(*this);
  Reply reply;
  reply.sink = call.sink;
  reply.body = call.body;
  const std::string url = options_.endpoint + call.path + (call.query.empty() ? "" : "?" + call.query);
  curl.set(CURLOPT_URL, url.c_str());
  curl.set(CURLOPT_PATH_AS_IS, 1L);
  curl.set(CURLOPT_PROTOCOLS_STR, "http,https");
  curl.set(CURLOPT_NOSIGNAL, 1L);
  curl.set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_ms));
  curl.set(CURLOPT_TIMEOUT_MS, static_cast<long>(options_.whole_ms));
  curl.set(CURLOPT_CUSTOMREQUEST, call.method);
  if (std::strcmp(call.method, "HEAD") == 0) curl.set(CURLOPT_NOBODY, 1L);
  if (std::strcmp(call.method, "PUT") == 0 || std::strcmp(call.method, "POST") == 0) {
    curl.set(CURLOPT_UPLOAD, 1L);
    curl.set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(call.body.size()));
    curl.set(CURLOPT_READDATA, &reply);
    curl.set(CURLOPT_READFUNCTION, +[](char* out, size_t size, size_t count, void* to) {
      Reply& r = *static_cast<Reply*>(to);
      const size_t n = std::min(size * count, r.body.size() - r.num_sent);
      std::memcpy(out, r.body.data() + r.num_sent, n);
      r.num_sent += n;
      return n;
    });
  }
  curl.set(CURLOPT_WRITEDATA, &reply);
  curl.set(CURLOPT_WRITEFUNCTION, +[](char* bytes, size_t size, size_t count, void* to) {
    Reply& r = *static_cast<Reply*>(to);
    const size_t n = size * count;
    if (!r.sink.empty() && (r.status == 200 || r.status == 206)) {
      const size_t taken = std::min(n, r.sink.size() - r.num_bytes);
      std::memcpy(r.sink.data() + r.num_bytes, bytes, taken);
      r.num_bytes += taken;
      return taken;  // more than was asked for: the transfer ends here
    }
    if (r.text.size() + n > kMaxTextBytes) return size_t{0};
    r.text.append(bytes, n);
    return n;
  });
  curl.set(CURLOPT_HEADERDATA, &reply);
  curl.set(CURLOPT_HEADERFUNCTION, +[](char* bytes, size_t size, size_t count, void* to) {
    Reply& r = *static_cast<Reply*>(to);
    const std::string_view line(bytes, size * count);
    if (line.starts_with("HTTP/")) {
      const size_t space = line.find(' ');
      r.status = space == std::string_view::npos ? 0 : std::strtol(std::string(line.substr(space + 1, 3)).c_str(), nullptr, 10);
    }
    std::string name(line.substr(0, 5));
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (name == "etag:") {
      const size_t begin = line.find_first_not_of(" \t", 5), end = line.find_last_not_of(" \t\r\n");
      if (begin != std::string_view::npos && end >= begin) r.etag = line.substr(begin, end - begin + 1);
    }
    return line.size();
  });
  if (!options_.access_key.empty()) {
    curl.set(CURLOPT_AWS_SIGV4, ("aws:amz:" + options_.region + ":s3").c_str());
    curl.set(CURLOPT_USERNAME, options_.access_key.c_str());
    curl.set(CURLOPT_PASSWORD, options_.secret_key.c_str());
    if (!options_.session_token.empty()) curl.add_header("x-amz-security-token: " + options_.session_token);
  }
  curl.add_header("x-amz-content-sha256: " + sha256_hex(call.body));
  for (const std::string& header : call.headers) curl.add_header(header);
  curl.set(CURLOPT_HTTPHEADER, curl.headers());
  const std::string range = fmt::format("{}-{}", call.offset, call.offset + std::max<size_t>(1, call.sink.size()) - 1);
  if (!call.sink.empty()) curl.set(CURLOPT_RANGE, range.c_str());
  curl.set(CURLOPT_FILETIME, 1L);
  const CURLcode done = ::curl_easy_perform(curl.get());
  const bool sink_full = done == CURLE_WRITE_ERROR && !call.sink.empty() && reply.num_bytes == call.sink.size();
  if (done != CURLE_OK && !sink_full) return Error{Code::kIo, fmt::format("s3://{}: {} {}: {}", options_.bucket, call.method, call.path, ::curl_easy_strerror(done))};
  curl_easy_getinfo(curl.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &reply.length);
  curl_off_t modified = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_FILETIME_T, &modified);
  reply.modified_unix_s = std::max<int64_t>(0, modified);
  if ((reply.status >= 200 && reply.status < 300) || reply.status == kNothingThere) return reply;
  pugi::xml_document xml;
  const bool is_xml = static_cast<bool>(xml.load_buffer(reply.text.data(), reply.text.size()));
  const std::string why = is_xml ? xml.child("Error").child_value("Code") : "";
  return error_of(reply.status, fmt::format("s3://{}: {} {}: status {}{}{}", options_.bucket, call.method, call.path, reply.status, why.empty() ? "" : ", ", why));
}

Result<size_t> S3Bucket::read(const std::string& key, uint64_t offset, std::span<std::byte> out) {
  if (out.empty()) return size_t{0};
  DI_TRY(const Reply reply, send({.method = "GET", .path = path_of(key), .sink = out, .offset = offset}));
  if (reply.status == 200 && offset != 0) return Error{Code::kIo, fmt::format("s3://{}/{}: the server knows no ranges", options_.bucket, key)};
  return reply.num_bytes;
}

Result<S3Bucket::Object> S3Bucket::status(const std::string& key) {
  DI_TRY(const Reply reply, send({.method = "HEAD", .path = path_of(key)}));
  if (reply.length < 0) return Error{Code::kIo, fmt::format("s3://{}/{}: of unknown length", options_.bucket, key)};
  return Object{.key = key, .size = static_cast<uint64_t>(reply.length), .modified_unix_s = reply.modified_unix_s};
}

Result<> S3Bucket::put(const std::string& key, std::span<const std::byte> content) {
  if (content.size() > options_.part_bytes) return put_in_parts(key, content);
  DI_TRY(send({.method = "PUT", .path = path_of(key), .body = content}));
  return {};
}

Result<std::string> S3Bucket::put_part(const std::string& key, const std::string& upload_id, size_t number, std::span<const std::byte> part) {
  DI_TRY(Reply reply, send({.method = "PUT", .path = path_of(key), .query = fmt::format("partNumber={}&uploadId={}", number, upload_id), .body = part}));
  if (reply.etag.empty()) return Error{Code::kIo, fmt::format("s3://{}/{}: a part without an ETag", options_.bucket, key)};
  return std::move(reply.etag);
}

Result<> S3Bucket::put_in_parts(const std::string& key, std::span<const std::byte> content) {
  DI_TRY(const Reply begun, send({.method = "POST", .path = path_of(key), .query = "uploads="}));
  pugi::xml_document xml;
  if (!xml.load_buffer(begun.text.data(), begun.text.size())) return Error{Code::kIo, fmt::format("s3://{}/{}: an upload without an answer", options_.bucket, key)};
  const std::string upload_id = encoded(xml.child("InitiateMultipartUploadResult").child_value("UploadId"), false);
  std::string parts = "<CompleteMultipartUpload>";
  Result<> done;
  for (size_t at = 0, number = 1; at < content.size() && done; at += options_.part_bytes, ++number) {
    const Result<std::string> etag = put_part(key, upload_id, number, content.subspan(at, std::min(options_.part_bytes, content.size() - at)));
    if (etag) {
      parts += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", number, *etag);
    } else {
      done = etag.error();
    }
  }
  parts += "</CompleteMultipartUpload>";
  if (done) {
    const Result<Reply> completed = send({.method = "POST", .path = path_of(key), .query = "uploadId=" + upload_id, .body = std::as_bytes(std::span(parts))});
    if (!completed) {
      done = completed.error();
    } else if (completed->text.find("<Error>") != std::string::npos) {  // S3 may find out after it said 200
      done = Error{Code::kIo, fmt::format("s3://{}/{}: the parts were not put together", options_.bucket, key)};
    }
  }
  // Else its parts would be kept, and paid for, for ever.
  if (!done) (void)send({.method = "DELETE", .path = path_of(key), .query = "uploadId=" + upload_id}).has_value();
  return done;
}

Result<> S3Bucket::copy(const std::string& from, const std::string& to) {
  DI_TRY(send({.method = "PUT", .path = path_of(to), .headers = {"x-amz-copy-source: " + path_of(from)}}));
  return {};
}

Result<> S3Bucket::remove(const std::string& key) {
  const Result<Reply> reply = send({.method = "DELETE", .path = path_of(key)});
  if (!reply && reply.error().code != Code::kNotFound) return reply.error();
  return {};
}

Result<S3Bucket::Listing> S3Bucket::list(const std::string& prefix) {
  Listing out;
  std::string token;
  for (int page = 0; page < kMaxPages; ++page) {
    const std::string begin = token.empty() ? "" : "continuation-token=" + encoded(token, false) + "&";
    DI_TRY(const Reply reply, send({.method = "GET", .path = path_of(""), .query = begin + "delimiter=%2F&list-type=2&prefix=" + encoded(prefix, false)}));
    pugi::xml_document xml;
    const bool is_xml = static_cast<bool>(xml.load_buffer(reply.text.data(), reply.text.size()));
    const pugi::xml_node list = xml.child("ListBucketResult");
    if (!is_xml || !list) return Error{Code::kIo, fmt::format("s3://{}/{}: no listing", options_.bucket, prefix)};
    for (const pugi::xml_node object : list.children("Contents")) {
      out.objects.push_back({.key = object.child_value("Key"), .size = object.child("Size").text().as_ullong(), .modified_unix_s = parse_iso_time(object.child_value("LastModified"))});
    }
    for (const pugi::xml_node folder : list.children("CommonPrefixes")) out.prefixes.push_back(folder.child_value("Prefix"));
    token = list.child_value("NextContinuationToken");
    if (token.empty()) return out;
  }
  return Error{Code::kResourceExhausted, fmt::format("s3://{}/{}: more than {} pages of objects", options_.bucket, prefix, kMaxPages)};
}

}  // namespace deepinfer::io
