// DeepSeek-V4.1: hyper-connected streams, window and selected attention over compressed rows, experts, Engram memory, a causal
// encoder-decoder. model.md 2 says what is computed and where it is rounded; the golden data of the official code are the judge.
//
// A step is one SPMD region over flat rows. Layers up to the last KV source see every row; from there on only rows at or after their
// sequence's decoder_start remain (narrowing). Weights are read where they lie in the checkpoint.
#pragma once

#include <memory>
#include <string>

#include "model/checkpoint.h"
#include "model/model.h"
#include "model/v41_config.h"
#include "model/v41_engram.h"
#include "model/v41_memory.h"
#include "model/v41_weights.h"

namespace deepinfer::model {

// Sees what a step computes, for comparison with the goldens: names as there ("attn_in", "X", …), layer -1 for what belongs to none. Called
// by one thread at a time, between barriers. rows: the step's rows that the array has, in order. It may write into the floats that sublayers pass on ("attn_in",
// "attn_out", "ffn_in", "ffn_out", "X_engram", "X", "pre", "hc.attn", "hc.ffn"), so that one operation can be judged without the noise of those before it.
class V41Observer {
 public:
  virtual ~V41Observer() = default;
  virtual void floats(std::string_view name, int32_t layer, int64_t num_rows, int64_t width, float* data) = 0;
  virtual void integers(std::string_view name, int32_t layer, int64_t num_rows, int64_t width, const int32_t* data) = 0;
  virtual void bytes(std::string_view, int32_t /*layer*/, int64_t /*num_rows*/, int64_t /*width*/, const uint8_t*) {}
};

class V41 : public Model {
 public:
  // weights: bound from `checkpoint` with `config`, read through its mapping for as long as the model lives. memory: of the same
  // checkpoint; null: no bound.
  static std::unique_ptr<V41> create(V41Config config, V41Weights weights, EngramHash engram, std::unique_ptr<Checkpoint> checkpoint,
                                     Isa isa = default_isa(), std::unique_ptr<V41Memory> memory = nullptr);
  virtual const V41Config& config() const = 0;
  virtual const V41Memory* memory() const = 0;
  virtual void observe(V41Observer* observer) = 0;  // null: nobody looks
};

}  // namespace deepinfer::model
