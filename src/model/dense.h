// Dense decoder models: Llama, Qwen2 and Qwen3, which differ in biases, q/k norms and names only.
//
// A step is one SPMD region over flat rows. Matrices of a layer are packed in two fused products (q, k, v and gate, up) and two
// plain ones; between products every thread works on its own rows, so a layer has ten barriers (six for a single row, whose
// row-wise work every thread repeats instead of waiting for it). The residual stream and all norms are float.
// The last layer's attention and what follows are computed only for rows whose logits are wanted.
// The alternative that lost: a graph of operations, each with its barrier and its buffer, as llama.cpp has: 30 barriers a layer.
#pragma once

#include <memory>

#include "kernels/kv_format.h"
#include "kernels/linear.h"
#include "model/checkpoint.h"
#include "model/dense_config.h"
#include "model/dense_weights.h"
#include "model/model.h"

namespace deepinfer::model {

struct DenseOptions {
  Activations activations = Activations::kFast;
  KvFormat kv_format = KvFormat::kBf16;
  Isa isa = Isa::kPortable;
};

// Packs all matrices with all threads; the mapping of what was packed is released. The model keeps the checkpoint for the rows of its
// embedding. weights: bound from this checkpoint with this config.
std::unique_ptr<Model> make_dense_model(const DenseConfig& config, const DenseWeights& weights, std::unique_ptr<Checkpoint> checkpoint,
                                        const DenseOptions& options, Workers& workers);

}  // namespace deepinfer::model
