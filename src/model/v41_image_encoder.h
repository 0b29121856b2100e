// The vision side of DeepSeek-V4.1: patches of a picture to the rows that stand in its place in a prompt. A ViT with full attention and
// two-dimensional rotary positions, then an aligner that joins 3 x 3 patches to one row. bf16 numbers between operations, f32 inside.
// Source: the released vision.py and image_processor.py (revision dba1be0a).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "image/patches.h"
#include "kernels/linear.h"
#include "kernels/team.h"
#include "model/image_encoder.h"
#include "model/v41_config.h"
#include "model/v41_weights.h"

namespace deepinfer::model {

image::PatchOptions patch_options(const V41Vision& vision);

class V41ImageEncoder final : public ImageEncoder {
 public:
  // config.vision is there; weights outlive this.
  V41ImageEncoder(const V41Config& config, const V41Weights& weights, Isa isa);

  TokenId token_id() const override { return config_.image_token_id; }
  const image::PatchOptions& patch_options() const override { return patch_options_; }
  // The rows: image_start; the aligner's line by line, image_newline after each; image_end.
  std::unique_ptr<ImageEncoding> begin(std::vector<bf16> patches, const image::PatchPlan& plan, Workers& workers) const override;

  // The two halves, for tests: the tower's output [patches, vision hidden]; the aligner's [token_rows * token_columns, hidden_size].
  std::vector<bf16> tower(std::vector<bf16> patches, const image::PatchPlan& plan, Workers& workers) const;
  std::vector<bf16> align(std::vector<bf16> features, const image::PatchPlan& plan, Workers& workers) const;

 private:
  const V41Config& config_;
  const V41VisionWeights& weights_;
  const image::PatchOptions patch_options_;
  Isa isa_;
};

}  // namespace deepinfer::model
