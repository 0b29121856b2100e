// From a client's image file to what a model's encoder reads: decoded within limits, brought to the model's size, named by its pixels.
// Pure functions, any thread. The engine's answer to Inference::read_image().
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"
#include "core/input_image.h"
#include "image/decode.h"
#include "image/patches.h"
#include "image/picture.h"

namespace deepinfer::engine {

// Errors: those of image::plan_patches().
Result<std::shared_ptr<const InputImage>> fit_image(const image::Picture& picture, const image::PatchOptions& options);
// The same from a file. Errors: those of image::decode() too.
Result<std::shared_ptr<const InputImage>> read_image(std::span<const std::byte> file, const image::PatchOptions& options, const image::DecodeLimits& limits);

// Whether an image has the form that read_image() gives.
bool is_fitted(const InputImage& image, const image::PatchOptions& options);

}  // namespace deepinfer::engine
