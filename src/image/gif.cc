// The first frame of a GIF on its canvas, which has the background colour where the frame does not reach.
#include <fmt/format.h>
#include <gif_lib.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "image/codecs.h"

namespace deepinfer::image {
namespace {

struct GifSource {
  std::span<const std::byte> file;
  size_t at = 0;
};

int read_gif(GifFileType* gif, GifByteType* out, int count) {
  auto& source = *static_cast<GifSource*>(gif->UserData);
  const size_t n = std::min(static_cast<size_t>(count), source.file.size() - source.at);
  std::memcpy(out, source.file.data() + source.at, n);
  source.at += n;
  return static_cast<int>(n);
}

struct Close {
  void operator()(GifFileType* gif) const { (void)DGifCloseFile(gif, nullptr); }
};

// libgif names the errors, some with a comma or a stop; null for none.
Error error_of(int code) {
  const char* why = GifErrorString(code);
  return {Code::kCorruption, fmt::format("the GIF image cannot be read: {}", why != nullptr ? why : "damaged")};
}

GifColorType color_of(const ColorMapObject& map, int index) {
  return index < map.ColorCount ? map.Colors[index] : GifColorType{0, 0, 0};
}

void put(Picture& picture, int64_t x, int64_t y, const GifColorType& color) {
  uint8_t* pixel = picture.rgb.data() + (y * picture.width + x) * 3;
  pixel[0] = color.Red, pixel[1] = color.Green, pixel[2] = color.Blue;
}

// The frame that DGifGetImageDesc has announced.
Result<Picture> read_frame(GifFileType& gif, Picture picture) {
  const GifImageDesc& frame = gif.Image;
  if (frame.Left < 0 || frame.Top < 0 || frame.Width <= 0 || frame.Height <= 0 || frame.Left + frame.Width > picture.width ||
      frame.Top + frame.Height > picture.height) {
    return Error{Code::kCorruption, "the GIF image cannot be read: its frame leaves the canvas"};
  }
  const ColorMapObject* map = frame.ColorMap != nullptr ? frame.ColorMap : gif.SColorMap;
  if (map == nullptr) return Error{Code::kCorruption, "the GIF image cannot be read: it has no palette"};
  constexpr std::array<int, 4> kFirst{0, 4, 2, 1}, kStep{8, 8, 4, 2};  // rows of the four passes of an interlaced frame
  std::vector<GifPixelType> line(static_cast<size_t>(frame.Width));
  for (size_t pass = 0; pass < (frame.Interlace ? kFirst.size() : 1); ++pass) {
    for (int y = frame.Interlace ? kFirst[pass] : 0; y < frame.Height; y += frame.Interlace ? kStep[pass] : 1) {
      if (DGifGetLine(&gif, line.data(), frame.Width) == GIF_ERROR) return error_of(gif.Error);
      for (int x = 0; x < frame.Width; ++x) put(picture, frame.Left + x, frame.Top + y, color_of(*map, line[static_cast<size_t>(x)]));
    }
  }
  return picture;
}

}  // namespace

Result<Picture> decode_gif(std::span<const std::byte> file, const Bounds& bounds) {
  GifSource source{.file = file, .at = 0};
  int code = 0;
  const std::unique_ptr<GifFileType, Close> gif(DGifOpen(&source, read_gif, &code));
  if (gif == nullptr) return error_of(code);
  DI_TRY(Picture picture, bounds.allocate("GIF", gif->SWidth, gif->SHeight));
  if (gif->SColorMap != nullptr) {
    const GifColorType background = color_of(*gif->SColorMap, gif->SBackGroundColor);
    for (int64_t y = 0; y < picture.height; ++y)
      for (int64_t x = 0; x < picture.width; ++x) put(picture, x, y, background);
  }
  for (;;) {
    GifRecordType record = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif.get(), &record) == GIF_ERROR) return error_of(gif->Error);
    if (record == IMAGE_DESC_RECORD_TYPE) {
      if (DGifGetImageDesc(gif.get()) == GIF_ERROR) return error_of(gif->Error);
      return read_frame(*gif, std::move(picture));
    }
    if (record != EXTENSION_RECORD_TYPE) return Error{Code::kCorruption, "the GIF image cannot be read: it has no frame"};
    int extension = 0;
    GifByteType* block = nullptr;
    if (DGifGetExtension(gif.get(), &extension, &block) == GIF_ERROR) return error_of(gif->Error);
    while (block != nullptr) {
      if (DGifGetExtensionNext(gif.get(), &block) == GIF_ERROR) return error_of(gif->Error);
    }
  }
}

}  // namespace deepinfer::image
