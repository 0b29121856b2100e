// PNG through libpng's row interface: the simplified one would apply gamma chunks, which training did not.
#include <fmt/format.h>
#include <png.h>

#include <cstring>
#include <string>
#include <vector>

#include "image/codecs.h"

namespace deepinfer::image {
namespace {

struct PngSource {
  std::span<const std::byte> file;
  size_t at = 0;
  std::string error;
};

void read_png(png_structp png, png_bytep out, size_t count) {
  auto& source = *static_cast<PngSource*>(png_get_io_ptr(png));
  if (count > source.file.size() - source.at) png_error(png, "the file ends too early");
  std::memcpy(out, source.file.data() + source.at, count);
  source.at += count;
}

[[noreturn]] void fail(png_structp png, png_const_charp message) {
  static_cast<PngSource*>(png_get_error_ptr(png))->error = message;
  png_longjmp(png, 1);
}
void ignore_warning(png_structp, png_const_charp) {}

struct Header {
  uint32_t width = 0, height = 0;
};

// The two halves run under setjmp: a fault in libpng jumps back past them, so nothing in them needs a destructor.
bool read_header(png_structp png, png_infop info, Header& header) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_info(png, info);
  header = {png_get_image_width(png, info), png_get_image_height(png, info)};
  return true;
}

bool read_rows(png_structp png, png_infop info, png_bytepp rows, size_t row_bytes) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_expand(png);  // palettes, and grey below 8 bits
  png_set_strip_16(png);
  png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
  (void)png_set_interlace_handling(png);
  png_read_update_info(png, info);
  if (png_get_rowbytes(png, info) != row_bytes) png_error(png, "rows are not 8-bit RGB");
  png_read_image(png, rows);
  return true;
}

}  // namespace

Result<Picture> decode_png(std::span<const std::byte> file, const Bounds& bounds) {
  PngSource source{.file = file, .at = 0, .error = {}};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, fail, ignore_warning);
  CHECK(png != nullptr);
  png_infop info = png_create_info_struct(png);
  CHECK(info != nullptr);
  png_set_read_fn(png, &source, read_png);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
  png_set_chunk_malloc_max(png, png_alloc_size_t{1} << 20);  // compressed text and profiles, which nobody reads here

  const auto finish = [&](Result<Picture> result) {
    png_destroy_read_struct(&png, &info, nullptr);
    return result;
  };
  const auto corrupt = [&] { return finish(Error{Code::kCorruption, fmt::format("the PNG image cannot be read: {}", source.error)}); };
  Header header;
  if (!read_header(png, info, header)) return corrupt();
  Result<Picture> picture = bounds.allocate("PNG", header.width, header.height);
  if (!picture) return finish(std::move(picture));
  const size_t row_bytes = size_t{header.width} * 3;
  std::vector<png_bytep> rows;
  for (size_t y = 0; y < header.height; ++y) rows.push_back(picture->rgb.data() + y * row_bytes);
  if (!read_rows(png, info, rows.data(), row_bytes)) return corrupt();
  return finish(std::move(picture));
}

}  // namespace deepinfer::image
