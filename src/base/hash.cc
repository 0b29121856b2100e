#include "base/hash.h"

#include <cstring>
#include <sodium.h>
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

size_t Digest256Hash::operator()(const Digest256& digest) const {
  size_t value;
  std::memcpy(&value, digest.bytes.data(), sizeof value);
  return value;
}

uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed) { return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed); }

}  // namespace deepinfer
