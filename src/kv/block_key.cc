#include "kv/block_key.h"

#include <array>
#include <numeric>
#include <string>

#include "base/check.h"

namespace deepinfer::kv {
namespace {

constexpr std::string_view kTenantDomain = "deepinfer tenant secret v1";
constexpr std::string_view kRootDomain = "deepinfer kv root v2";
constexpr std::string_view kReplayMessage = "replay";  // no block's message has six bytes

// Integers lie in memory as the format wants them: base/bytes.h asserts it.
template <class T>
std::span<const std::byte> bytes_of_value(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// Lengths go first, so that no two different roots have the same bytes.
void add_text(Blake2b256& hash, std::string_view text) {
  hash.update(bytes_of_value(static_cast<uint32_t>(text.size())));
  hash.update(bytes_of(text));
}

}  // namespace

Digest256 tenant_secret(const Digest256& master, std::string_view tenant) {
  Blake2b256 hash(std::as_bytes(std::span(master.bytes)));
  hash.update(bytes_of(kTenantDomain));
  hash.update(bytes_of(tenant));
  return hash.finish();
}

BlockKey root_key(const KeyRoot& root) {
  Blake2b256 hash(bytes_of(kRootDomain));
  add_text(hash, root.weights);
  add_text(hash, root.architecture);
  add_text(hash, root.format);
  hash.update(bytes_of_value(static_cast<uint32_t>(root.block_tokens)));
  add_text(hash, root.adapter);
  hash.update(std::as_bytes(std::span(root.tenant.bytes)));
  add_text(hash, root.salt);
  return hash.finish();
}

BlockKey block_key(const BlockKey& parent, std::span<const TokenId> tokens, std::span<const BlockMedia> media) {
  CHECK(tokens.size() <= kMaxBlockTokens);
  Blake2b256 hash(std::as_bytes(std::span(parent.bytes)));
  hash.update(bytes_of_value(static_cast<uint32_t>(tokens.size())));
  hash.update(std::as_bytes(tokens));
  hash.update(bytes_of_value(static_cast<uint32_t>(media.size())));
  for (const BlockMedia& item : media) {
    hash.update(bytes_of_value(item.offset));
    hash.update(std::as_bytes(std::span(item.digest.bytes)));
  }
  return hash.finish();
}

BlockKey replay_key(const BlockKey& parent) { return blake2b_256(bytes_of(kReplayMessage), std::as_bytes(std::span(parent.bytes))); }

Result<> check_key_vector() {
  Digest256 counting;
  std::iota(counting.bytes.begin(), counting.bytes.end(), uint8_t{0});
  std::array<TokenId, 32> tokens;
  std::iota(tokens.begin(), tokens.end(), 1000);
  const std::array<BlockMedia, 2> media{{{.offset = -3, .digest = {}}, {.offset = 7, .digest = counting}}};
  const BlockKey root = root_key({.weights = "w", .architecture = "llama-v1", .format = "dense-bf16-v1", .block_tokens = 32,
                                  .tenant = tenant_secret(counting, "t")});
  const BlockKey last = block_key(replay_key(block_key(root, tokens)), tokens, media);
  if (last.hex() == kKeyVector) return {};
  return Error{Code::kInternal, "block keys differ from their format: this build cannot use a cache (" + last.hex() + ")"};
}

}  // namespace deepinfer::kv
