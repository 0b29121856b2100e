// Everything that a DeepSeek-V4.1 model computes for a prompt, as a safetensors file with the names of the golden data
// (tests/golden/v41-tiny/README.md: "attn_in.3", "main_codes.4", …), so that a difference can be found layer by layer without a debugger.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "core/request.h"
#include "model/v41.h"

namespace deepinfer::model {

constexpr int32_t kMaxDumpTokens = 4096;

// Runs the prompt in one step, without narrowing, and writes `path`. layers: whose arrays are wanted, empty: all; what belongs to no layer
// ("logits", "taps", …) is always there. The model must not have been reserved before.
// Errors: kInvalidArgument (no tokens, more than kMaxDumpTokens or the context, ids or layers that are not there), kIo.
Result<> dump_v41(V41& model, std::span<const TokenId> tokens, std::span<const int32_t> layers, const std::string& path, Workers& workers);

}  // namespace deepinfer::model
