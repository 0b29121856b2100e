// Hashes. BLAKE2b-256 (keyed: a MAC) identifies; XXH3 detects accidents. Nothing truncated decides anything.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace deepinfer {

struct Digest256 {
  std::array<uint8_t, 32> bytes{};
  auto operator<=>(const Digest256&) const = default;
  std::string hex() const;
};

// BLAKE2b with a 32-byte digest (RFC 7693). key: 0 to 64 bytes.
Digest256 blake2b_256(std::span<const std::byte> message, std::span<const std::byte> key = {});

// 64 bits of a digest, for bucket choice only: equality always compares whole digests.
struct Digest256Hash {
  size_t operator()(const Digest256& digest) const;
};

uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed = 0);

}  // namespace deepinfer
