// What a model with vision makes of pictures: rows that stand at their positions in a prompt. image/patches.h brings a picture to the
// size that patch_options() asks for.
#pragma once

#include <span>
#include <vector>

#include "base/half.h"
#include "core/request.h"
#include "image/patches.h"
#include "kernels/team.h"

namespace deepinfer::model {

class ImageEncoder {
 public:
  virtual ~ImageEncoder() = default;
  virtual TokenId token_id() const = 0;  // of every position of a picture
  virtual const image::PatchOptions& patch_options() const = 0;

  // patches [plan.patch_rows * plan.patch_columns, 3 * patch_size^2] as image::make_patches gives them. Returns the rows of the picture's
  // positions in a prompt, [plan.num_tokens(), hidden_size]; their bits depend on the patches alone. Allocates its working memory: a
  // picture is encoded once, before its rows are computed.
  virtual std::vector<bf16> encode(std::span<const bf16> patches, const image::PatchPlan& plan, Workers& workers) const = 0;
};

}  // namespace deepinfer::model
