#include "base/hash.h"

#include <cstring>
#include <sodium.h>
#define XXH_STATIC_LINKING_ONLY  // the streaming state on the stack
#include <xxhash.h>

#include "base/check.h"

namespace deepinfer {

std::string Digest256::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(64);
  for (const uint8_t byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

Digest256 blake2b_256(std::span<const std::byte> message, std::span<const std::byte> key) {
  Digest256 out;
  const int rc = crypto_generichash_blake2b(out.bytes.data(), out.bytes.size(), reinterpret_cast<const unsigned char*>(message.data()),
                                            message.size(), key.empty() ? nullptr : reinterpret_cast<const unsigned char*>(key.data()),
                                            key.size());
  CHECK(rc == 0);
  return out;
}

namespace {
static_assert(sizeof(crypto_generichash_blake2b_state) <= 384);
crypto_generichash_blake2b_state* state_in(std::array<std::byte, 384>& bytes) {
  return reinterpret_cast<crypto_generichash_blake2b_state*>(bytes.data());
}
}  // namespace

Blake2b256::Blake2b256(std::span<const std::byte> key) {
  const int rc = crypto_generichash_blake2b_init(state_in(state_), key.empty() ? nullptr : reinterpret_cast<const unsigned char*>(key.data()),
                                                 key.size(), sizeof(Digest256::bytes));
  CHECK(rc == 0);
}

void Blake2b256::update(std::span<const std::byte> bytes) {
  crypto_generichash_blake2b_update(state_in(state_), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

Digest256 Blake2b256::finish() {
  Digest256 out;
  crypto_generichash_blake2b_final(state_in(state_), out.bytes.data(), out.bytes.size());
  return out;
}

Digest256 random_256() {
  CHECK(sodium_init() >= 0);  // idempotent and thread-safe
  Digest256 out;
  randombytes_buf(out.bytes.data(), out.bytes.size());
  return out;
}

size_t Digest256Hash::operator()(const Digest256& digest) const {
  size_t value;
  std::memcpy(&value, digest.bytes.data(), sizeof value);
  return value;
}

uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed) { return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed); }

Check128 xxh3_128(std::initializer_list<std::span<const std::byte>> pieces) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (const auto& piece : pieces) XXH3_128bits_update(&state, piece.data(), piece.size());
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return {.low = hash.low64, .high = hash.high64};
}

}  // namespace deepinfer
