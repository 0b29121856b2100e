// kv/block_key.h: the name of a block's bytes. A key is a chain of keyed BLAKE2b-256 digests: each block's key is a MAC over its own
// token ids under its parent's key, and the first block's parent is a root that names weights, layout and tenant. So a key says
// everything that could change the bytes, equal keys mean equal bytes, and a block can be found only by walking its whole prefix.
// Full digests are compared; nothing truncated decides. Pure functions, any thread. The bytes: docs/formats/block_key.md.
// The alternative that lost: a 64-bit hash with a comparison of token ids on a hit. It needs the ids of every cached block in memory,
// and a store on disk or on another machine cannot compare what it does not have.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/hash.h"
#include "core/request.h"

namespace deepinfer::kv {

using BlockKey = Digest256;

// What a chain starts from.
struct KeyRoot {
  std::string_view weights;  // identity of the weights: a digest, or whatever differs when one weight differs
  std::string_view format;   // KvLayout::format: names everything that changes the bytes of a block
  int32_t block_tokens;      // tokens a block covers
  std::string_view tenant;   // blocks are found within a tenant only
  std::string_view salt{};   // separates further, e.g. one request from all others; empty: shared within the tenant
};

BlockKey root_key(const KeyRoot& root);

// Key of the full block that holds `tokens` after the prefix that `parent` names. At most kMaxBlockTokens tokens.
constexpr int32_t kMaxBlockTokens = 1024;
BlockKey block_key(const BlockKey& parent, std::span<const TokenId> tokens);

}  // namespace deepinfer::kv
