#include "api/image_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/base64.h"

namespace deepinfer::api {
namespace {

// Of a file and not of the server, whatever went wrong with it; a fetch that failed on the way may be tried again.
ApiError problem_with(const recipe::Image& image, const Error& error) {
  std::string message = fmt::format("{}: {}", image.path, error.message);
  switch (error.code) {
    case Code::kUnavailable: return overloaded(std::move(message));
    case Code::kInternal: return internal_error(std::move(message));
    case Code::kIo:
    case Code::kDeadlineExceeded: {
      ApiError out = internal_error(std::move(message));
      out.may_pass = true;
      return out;
    }
    default: return bad_request(std::move(message), image.path);
  }
}

// Of data:MEDIA/TYPE;base64,DATA.
Result<std::string> from_data_url(std::string_view url) {
  constexpr std::string_view kMark = ";base64,";
  std::optional<std::string> bytes = decode_base64(url.substr(url.find(kMark) + kMark.size()));
  if (!bytes) return Error{Code::kInvalidArgument, "its base64 ends in bits that no byte has"};
  return std::move(*bytes);
}

// One of the threads that may wait for other servers, for as long as it lives.
class FetchPlace {
 public:
  explicit FetchPlace(std::atomic<int32_t>& taken) : taken_(taken), ok_(taken.fetch_add(1) < kMaxImageFetches) {}
  ~FetchPlace() { taken_.fetch_sub(1); }
  FetchPlace(const FetchPlace&) = delete;
  FetchPlace& operator=(const FetchPlace&) = delete;
  bool ok() const { return ok_; }

 private:
  std::atomic<int32_t>& taken_;
  const bool ok_;
};

}  // namespace

Result<std::string> ImageSource::fetch(const std::string& url) {
  ImageFetchOptions options = service_.options.image_fetch;
  if (options.hosts.empty()) return Error{Code::kInvalidArgument, "images are not fetched here: send them as data URLs"};
  const FetchPlace place(service_.num_image_fetches);
  if (!place.ok()) return Error{Code::kUnavailable, "too many images are being fetched"};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
  options.timeout = std::max(left, std::chrono::milliseconds(0));
  return fetch_image(url, options);
}

// A conversation brings all its pictures again with every turn. Known ones are known in their scope alone.
Result<std::shared_ptr<const InputImage>> ImageSource::read_file(std::span<const std::byte> file) {
  const Digest256 key = blake2b_256(file, std::as_bytes(std::span(scope_.bytes)));
  {
    const MutexLock lock(service_.images_mu);
    if (const auto known = service_.images.find(key)) return *known;
  }
  DI_TRY(std::shared_ptr<const InputImage> image, service_.inference.read_image(file));
  const MutexLock lock(service_.images_mu);
  service_.images.insert(key, image, image->rgb.size());
  return image;
}

Result<std::shared_ptr<const InputImage>> ImageSource::read(const recipe::Image& image) {
  Result<std::string> file = image.url.starts_with("data:") ? from_data_url(image.url) : fetch(image.url);
  if (file) {
    Result<std::shared_ptr<const InputImage>> read = read_file(std::as_bytes(std::span(*file)));
    if (read) return read;
    problem_ = problem_with(image, read.error());
    return read.error();
  }
  problem_ = problem_with(image, file.error());
  return file.error();
}

std::optional<ApiError> too_many_images(const Service& service, const recipe::Conversation& conversation) {
  const auto max = static_cast<size_t>(service.options.max_images);
  if (conversation.images.size() <= max) return std::nullopt;
  return bad_request(fmt::format("the request has {} images; at most {} are taken", conversation.images.size(), max), conversation.images[max].path);
}

}  // namespace deepinfer::api
