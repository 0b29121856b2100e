// What a DeepSeek-V4.1 checkpoint is made of and what a token costs: counted tensor by tensor from those that are bound and from how the
// router picks experts, not from a formula over the configuration. No weight is read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/checkpoint.h"
#include "model/model.h"
#include "model/v41_config.h"

namespace deepinfer::model {

// The tensors of one purpose, in all layers together. Of a part with experts or table rows a token reads only the chosen ones.
struct V41Part {
  std::string_view name;  // "routed experts"
  int64_t num_tensors = 0, num_parameters = 0, num_bytes = 0;
  double decode_bytes = 0;        // read for one token of one sequence
  double decode_parameters = 0;   // that take part in computing it
  double encoder_parameters = 0;  // of a prompt token that narrowing keeps out of the decoder layers
};

// Bound tensors of a checkpoint with this configuration. Every tensor is in one part; parts that are not there are left out.
std::vector<V41Part> v41_parts(std::span<const TensorView> tensors, const V41Config& config);

// Sums over parts.
V41Part v41_total(std::span<const V41Part> parts);

// State of one sequence of num_tokens tokens (v41_state.h): what it takes, and what attention and indexers read of it for the next token.
struct V41StateBytes {
  int64_t blocks = 0;   // shareable, whole blocks of 128 tokens
  int64_t rings = 0;    // private, whatever the length
  int64_t read = 0;
};
V41StateBytes v41_state_bytes(const V41Config& config, int64_t num_tokens);

// What the weights of a step cost, by who goes through them.
struct V41Share {
  double bytes = 0;         // read once a step, if any row comes by
  double row_bytes = 0;     // rows of tables: for every row
  double expert_bytes = 0;  // all routed experts; a row reads the chosen ones
  double products = 0;      // of a row, its experts included
};
struct V41Cost {
  V41Share encoder;  // all rows
  V41Share decoder;  // those that narrowing lets in
  V41Share head;     // those whose logits are wanted
};
V41Cost v41_cost(std::span<const TensorView> tensors, const V41Config& config);
StepCost v41_step_cost(const V41Cost& cost, const V41Config& config, const StepShape& shape);

// What `deepinfer model info` says. read_bytes_per_s: the machine's, as probed; 0: no estimate. contexts: lengths to show the state at.
using LabelledLines = std::vector<std::pair<std::string, std::string>>;
LabelledLines v41_info_lines(const V41Config& config, std::span<const V41Part> parts, std::span<const int64_t> contexts, double read_bytes_per_s);
std::string v41_info_json(const V41Config& config, std::span<const V41Part> parts, std::span<const int64_t> contexts, double read_bytes_per_s);

}  // namespace deepinfer::model
