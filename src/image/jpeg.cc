// JPEG through TurboJPEG, whose defaults (accurate DCT, smooth upsampling of colour) are those of libjpeg and so of Pillow.
#include <fmt/format.h>
#include <turbojpeg.h>

#include <memory>
#include <string_view>

#include "image/codecs.h"

namespace deepinfer::image {
namespace {

struct Destroy {
  void operator()(void* handle) const { tjDestroy(handle); }
};

// Stored values of a CMYK file are inverted ink (Adobe): 255 is none.
void cmyk_to_rgb(const std::vector<uint8_t>& cmyk, std::vector<uint8_t>& rgb) {
  for (size_t i = 0; i < rgb.size() / 3; ++i) {
    for (size_t c = 0; c < 3; ++c) rgb[3 * i + c] = static_cast<uint8_t>((cmyk[4 * i + c] * cmyk[4 * i + 3] + 127) / 255);
  }
}

// Whether the call that has just failed left the picture whole: stray bytes between segments do. Nothing else does: after a first warning
// TurboJPEG calls even fatal errors one.
bool is_whole(void* handle) {
  return tjGetErrorCode(handle) == TJERR_WARNING && std::string_view(tjGetErrorStr2(handle)).find("extraneous bytes before marker") != std::string_view::npos;
}

Error corrupt(void* handle) { return {Code::kCorruption, fmt::format("the JPEG image cannot be read: {}", tjGetErrorStr2(handle))}; }

}  // namespace

Result<Picture> decode_jpeg(std::span<const std::byte> file, const Bounds& bounds) {
  const std::unique_ptr<void, Destroy> handle(tjInitDecompress());
  CHECK(handle != nullptr);
  const auto* bytes = reinterpret_cast<const unsigned char*>(file.data());
  int width = 0, height = 0, subsampling = 0, colorspace = 0;
  if (tjDecompressHeader3(handle.get(), bytes, file.size(), &width, &height, &subsampling, &colorspace) != 0 && !is_whole(handle.get())) {
    return corrupt(handle.get());
  }
  DI_TRY(Picture picture, bounds.allocate("JPEG", width, height));
  const bool cmyk = colorspace == TJCS_CMYK || colorspace == TJCS_YCCK;
  std::vector<uint8_t> ink(cmyk ? picture.rgb.size() / 3 * 4 : 0);
  // A progressive file may name thousands of scans over all pixels: the flag ends it at 500.
  const int done = tjDecompress2(handle.get(), bytes, file.size(), cmyk ? ink.data() : picture.rgb.data(), width, 0, height,
                                 cmyk ? TJPF_CMYK : TJPF_RGB, TJFLAG_LIMITSCANS);
  if (done != 0 && !is_whole(handle.get())) return corrupt(handle.get());
  if (cmyk) cmyk_to_rgb(ink, picture.rgb);
  return picture;
}

}  // namespace deepinfer::image
