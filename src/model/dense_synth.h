// Random models of a given shape, for benchmarks and load tests on machines without a download: the cost of a step depends on
// shapes and formats, not on what the weights say. The file is complete GGUF with a vocabulary that llama.cpp loads too: the 256
// byte tokens, three control tokens, a ChatML template, and fillers that no text encodes to. Deterministic: the same shape, dtype
// and seed give the same bytes on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kernels/dtype.h"
#include "model/dense_config.h"

namespace deepinfer::model {

// Shapes by name: "tiny", "smollm2-135m", "qwen2.5-0.5b", "qwen3-0.6b", "llama3.2-1b", "qwen3-1.7b".
std::span<const std::string_view> dense_synth_names();
std::optional<DenseConfig> dense_synth_shape(std::string_view name);

// Writes the file under a temporary name and moves it to `path` when it is whole. Matrices are in `dtype` (F32, F16, BF16, Q8_0,
// Q4_0) with a standard deviation of 0.02; norms are 1; biases, norms and the like are F32. Of `shape`, what a GGUF file can say
// is used; RoPE scaling and windows are not written. Errors: kInvalidArgument (dtype or shape cannot be written), kIo.
Result<> write_dense_synth(const std::string& path, const DenseConfig& shape, DType dtype, uint64_t seed);

}  // namespace deepinfer::model
