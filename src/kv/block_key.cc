#include "kv/block_key.h"

#include <array>
#include <cstring>
#include <string>

#include "base/check.h"

namespace deepinfer::kv {
namespace {

constexpr std::string_view kRootDomain = "deepinfer kv root v1";

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

void append_u32(std::string& out, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift & 0xff);
}

// Lengths go first, so that no two different roots have the same bytes.
void append_text(std::string& out, std::string_view text) {
  append_u32(out, static_cast<uint32_t>(text.size()));
  out += text;
}

}  // namespace

BlockKey root_key(const KeyRoot& root) {
  std::string message;
  append_text(message, root.weights);
  append_text(message, root.format);
  append_u32(message, static_cast<uint32_t>(root.block_tokens));
  append_text(message, root.tenant);
  append_text(message, root.salt);
  return blake2b_256(bytes_of(message), bytes_of(kRootDomain));
}

BlockKey block_key(const BlockKey& parent, std::span<const TokenId> tokens) {
  CHECK(tokens.size() <= kMaxBlockTokens);
  // u32 count, then the ids as little-endian i32 (base/bytes.h asserts that this is how they lie in memory). On the stack: this runs
  // inside a step, which allocates nothing.
  std::array<uint32_t, 1 + kMaxBlockTokens> message;
  message[0] = static_cast<uint32_t>(tokens.size());
  std::memcpy(message.data() + 1, tokens.data(), tokens.size_bytes());
  return blake2b_256(std::as_bytes(std::span(message).first(1 + tokens.size())), std::as_bytes(std::span(parent.bytes)));
}

}  // namespace deepinfer::kv
