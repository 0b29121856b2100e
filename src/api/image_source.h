// Pictures of one request: out of data URLs or fetched, then read by the engine, or known from the turn before. On a worker.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "api/errors.h"
#include "api/service.h"
#include "core/input_image.h"
#include "recipe/conversation.h"

namespace deepinfer::api {

class ImageSource {
 public:
  // service outlives this. scope: knowledge_scope() of the request.
  ImageSource(Service& service, const Digest256& scope) : service_(service), scope_(scope), deadline_(std::chrono::steady_clock::now() + service.options.image_fetch.timeout) {}

  // Errors: what problem() words for the client, with the image's place in the request.
  Result<std::shared_ptr<const InputImage>> read(const recipe::Image& image);
  std::optional<ApiError>& problem() { return problem_; }

 private:
  Result<std::string> fetch(const std::string& url);
  Result<std::shared_ptr<const InputImage>> read_file(std::span<const std::byte> file);

  Service& service_;
  const Digest256 scope_;
  const std::chrono::steady_clock::time_point deadline_;  // for all that is fetched
  std::optional<ApiError> problem_;
};

// What is said about more images than a request may have, before one of them is looked at.
std::optional<ApiError> too_many_images(const Service& service, const recipe::Conversation& conversation);

}  // namespace deepinfer::api
