// Every tensor of a dense model by its role, bound from a checkpoint of either spelling. bind_dense() checks that exactly the
// expected tensors are there with exactly the expected shapes, so the forward pass can read them without further checks. The
// views belong to the checkpoint, which must outlive the DenseWeights.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "model/checkpoint.h"
#include "model/dense_config.h"

namespace deepinfer::model {

// Matrices are [outputs, inputs] in any self-contained DType. Norms, biases and divisors are vectors in F32, F16 or BF16. Null:
// the model has none.
struct DenseLayerWeights {
  const TensorView* attention_norm = nullptr;  // [hidden_size]
  const TensorView* q = nullptr;               // [q_size, hidden_size]
  const TensorView* k = nullptr;               // [kv_size, hidden_size]
  const TensorView* v = nullptr;               // [kv_size, hidden_size]
  const TensorView* output = nullptr;          // [hidden_size, q_size]
  const TensorView* q_bias = nullptr;          // [q_size]     if qkv_bias
  const TensorView* k_bias = nullptr;          // [kv_size]    if qkv_bias
  const TensorView* v_bias = nullptr;          // [kv_size]    if qkv_bias
  const TensorView* output_bias = nullptr;     // [hidden_size] if output_bias
  const TensorView* q_norm = nullptr;          // [head_dim]   if qk_norm
  const TensorView* k_norm = nullptr;          // [head_dim]   if qk_norm
  const TensorView* ffn_norm = nullptr;        // [hidden_size]
  const TensorView* gate = nullptr;            // [intermediate_size, hidden_size]
  const TensorView* up = nullptr;              // [intermediate_size, hidden_size]
  const TensorView* down = nullptr;            // [hidden_size, intermediate_size]
};

struct DenseWeights {
  const TensorView* embedding = nullptr;      // [vocab_size, hidden_size]
  const TensorView* output_norm = nullptr;    // [hidden_size]
  const TensorView* head = nullptr;           // [vocab_size, hidden_size]; the embedding itself if tied_head
  const TensorView* rope_divisors = nullptr;  // [head_dim / 2], F32, each > 0 (GGUF rope_freqs.weight); see RopeConfig
  std::vector<DenseLayerWeights> layers;      // num_hidden_layers
};

// Errors: kCorruption, naming the file and the tensor: missing, of the wrong shape, left over, or a vector in a block format;
// kUnsupported: in a format that needs scales from elsewhere.
// Left over are all that the model does not read, except what is surplus by design: rotary tables (*.inv_freq, derived from the
// config) and the head of a tied model (a copy of the embedding).
Result<DenseWeights> bind_dense(const Checkpoint& checkpoint, const DenseConfig& config);

// The name of a role's tensor in a file of this naming, for messages and writers: layer < 0 for those outside the layers.
// Roles are named as the members above.
std::string dense_tensor_name(TensorNaming naming, std::string_view role, int layer = -1);

}  // namespace deepinfer::model
