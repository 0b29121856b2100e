// What a model with vision makes of pictures: rows that stand at their positions in a prompt. image/patches.h brings a picture to the
// size that patch_options() asks for.
#pragma once

#include <memory>
#include <vector>

#include "base/half.h"
#include "core/request.h"
#include "image/patches.h"
#include "kernels/team.h"

namespace deepinfer::model {

// A picture on its way to rows. It is done in pieces, since a large one takes seconds of all threads: what else an engine runs goes on between
// them. The rows' bits do not depend on the pieces.
class ImageEncoding {
 public:
  virtual ~ImageEncoding() = default;
  // Goes on by about so many multiplications, by the smallest piece at least. True: it is done.
  virtual bool advance(double num_products) = 0;
  virtual std::vector<bf16> take_rows() = 0;  // once, when it is done: [plan.num_tokens(), hidden_size]
};

class ImageEncoder {
 public:
  virtual ~ImageEncoder() = default;
  virtual TokenId token_id() const = 0;  // of every position of a picture
  virtual const image::PatchOptions& patch_options() const = 0;

  // patches [plan.patch_rows * plan.patch_columns, 3 * patch_size^2] as image::make_patches gives them. The rows are those of the picture's positions
  // in a prompt; their bits depend on the patches alone. This and workers outlive what it returns, which owns its working memory.
  virtual std::unique_ptr<ImageEncoding> begin(std::vector<bf16> patches, const image::PatchPlan& plan, Workers& workers) const = 0;
};

}  // namespace deepinfer::model
