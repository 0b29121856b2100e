// Pictures to another size, with the bits of Pillow's bicubic (Resample.c, versions before 13): a cubic with a = -1/2, widened when shrinking, horizontally
// and then vertically, each pass in 22-bit fixed point and rounded to bytes.
#pragma once

#include "image/picture.h"

namespace deepinfer::image {

// width, height >= 1.
Picture resize_bicubic(const Picture& picture, int32_t width, int32_t height);

// The largest picture of the same shape inside width x height, centred on grey 127: Pillow's ImageOps.pad.
Picture pad_to(const Picture& picture, int32_t width, int32_t height);

}  // namespace deepinfer::image
