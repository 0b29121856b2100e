// WebP: still pictures, and the first frame of animations on their canvas.
#include <fmt/format.h>
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "image/codecs.h"

namespace deepinfer::image {
namespace {

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

}  // namespace

Result<Picture> decode_webp(std::span<const std::byte> file, const Bounds& bounds) {
  const WebPData data{reinterpret_cast<const uint8_t*>(file.data()), file.size()};
  const Error corrupt{Code::kCorruption, "the WebP image cannot be read: damaged or cut short"};
  const std::unique_ptr<WebPDemuxer, DeleteDemuxer> demuxer(WebPDemux(&data));  // null unless all frames are there
  if (demuxer == nullptr) return corrupt;
  DI_TRY(Picture picture, bounds.allocate("WebP", WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH), WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT)));
  WebPIterator frame;
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) return corrupt;
  const std::unique_ptr<WebPIterator, decltype(&WebPDemuxReleaseIterator)> release(&frame, WebPDemuxReleaseIterator);
  const int64_t right = int64_t{frame.x_offset} + frame.width, bottom = int64_t{frame.y_offset} + frame.height;
  if (frame.x_offset < 0 || frame.y_offset < 0 || right > picture.width || bottom > picture.height) return corrupt;
  // The stream of a frame states its size once more: the decoder must not find room for another one.
  int width = 0, height = 0;
  if (WebPGetInfo(frame.fragment.bytes, frame.fragment.size, &width, &height) == 0 || width != frame.width || height != frame.height) return corrupt;
  const size_t stride = static_cast<size_t>(picture.width) * 3;
  const size_t first = static_cast<size_t>(frame.y_offset) * stride + static_cast<size_t>(frame.x_offset) * 3;
  if (WebPDecodeRGBInto(frame.fragment.bytes, frame.fragment.size, picture.rgb.data() + first, picture.rgb.size() - first, static_cast<int>(stride)) == nullptr) {
    return corrupt;
  }
  return picture;
}

}  // namespace deepinfer::image
