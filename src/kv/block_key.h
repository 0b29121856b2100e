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
#include "base/result.h"
#include "core/request.h"

namespace deepinfer::kv {

using BlockKey = Digest256;

// What a tenant's chains start from beside the model: a MAC of the tenant's id under the master secret. `tenant` is what the server derived
// from the API key (Request::tenant); nothing of a request goes in.
Digest256 tenant_secret(const Digest256& master, std::string_view tenant);

// What a chain starts from.
struct KeyRoot {
  std::string_view weights;       // identity of the weights: a digest, or whatever differs when one weight differs
  std::string_view architecture;  // and the version of its computation: "llama-v1"
  std::string_view format;        // KvLayout::format: names everything else that changes the bytes of a block
  int32_t block_tokens;           // tokens a block covers
  std::string_view adapter{};     // digest of an adapter; empty: none
  Digest256 tenant{};             // tenant_secret(): blocks are found within a tenant only
  std::string_view salt{};        // separates further within the tenant, never less; empty: shared
};

BlockKey root_key(const KeyRoot& root);

// An image or other item whose tokens stand in a block.
struct BlockMedia {
  int32_t offset;    // of the item's first token from the block's first; negative if it began in an earlier block
  Digest256 digest;  // of its bytes and every parameter of its preprocessing
};

// Key of the full block that holds `tokens` after the prefix that `parent` names. At most kMaxBlockTokens tokens; media by offset.
constexpr int32_t kMaxBlockTokens = 1024;
BlockKey block_key(const BlockKey& parent, std::span<const TokenId> tokens, std::span<const BlockMedia> media = {});

// The parent of the blocks after `parent` whose windows began anew there (bounded replay): their bytes differ from those of a run
// without a gap, and so do their keys.
BlockKey replay_key(const BlockKey& parent);

// The last key of the format document's vector, and whether this program computes it: a build that does not must not share blocks
// with others. Errors: kInternal.
constexpr std::string_view kKeyVector = "bea18e1916247c74f8af5f799bf14e74c89f650f79d44a9a44505d81c06f387a";
Result<> check_key_vector();

}  // namespace deepinfer::kv
