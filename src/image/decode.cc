#include "image/decode.h"

#include <fmt/format.h>

#include <string_view>

#include "image/codecs.h"

namespace deepinfer::image {
namespace {
constexpr int64_t kMaxSide = 65535;  // of JPEG, the format with the smallest bound; also keeps all products in 64 bits
}

Result<Picture> Bounds::allocate(const char* format, int64_t width, int64_t height) const {
  if (width <= 0 || height <= 0) return Error{Code::kCorruption, fmt::format("the {} image has no pixels", format)};
  if (width > kMaxSide || height > kMaxSide || width * height > max_pixels) {
    return Error{Code::kResourceExhausted, fmt::format("the {} image has {} x {} pixels; the limit is {} pixels and {} a side", format, width,
                                                       height, max_pixels, kMaxSide)};
  }
  Picture picture{.width = static_cast<int32_t>(width), .height = static_cast<int32_t>(height), .rgb = {}};
  picture.rgb.resize(static_cast<size_t>(width * height * 3));
  return picture;
}

Result<Picture> decode(std::span<const std::byte> file, const DecodeLimits& limits) {
  const auto size = static_cast<int64_t>(file.size());
  if (size > limits.max_bytes) {
    return Error{Code::kResourceExhausted, fmt::format("the image file has {} bytes; the limit is {}", size, limits.max_bytes)};
  }
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  const Bounds bounds{limits.max_pixels};
  if (bytes.starts_with("\xff\xd8\xff")) return decode_jpeg(file, bounds);
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return decode_png(file, bounds);
  if (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a")) return decode_gif(file, bounds);
  if (bytes.starts_with("RIFF") && bytes.size() >= 12 && bytes.substr(8, 4) == "WEBP") return decode_webp(file, bounds);
  return Error{Code::kUnsupported, "the image is not a JPEG, PNG, WebP or GIF file"};
}

}  // namespace deepinfer::image
