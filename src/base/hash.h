// Hashes. BLAKE2b-256 (keyed: a MAC) identifies; XXH3 detects accidents. Nothing truncated decides anything.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace deepinfer {

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

struct Digest256 {
  std::array<uint8_t, 32> bytes{};
  auto operator<=>(const Digest256&) const = default;
  std::string hex() const;
};

// BLAKE2b with a 32-byte digest (RFC 7693). key: 0 to 64 bytes.
Digest256 blake2b_256(std::span<const std::byte> message, std::span<const std::byte> key = {});

// The same piece by piece; allocates nothing. key: 0 to 64 bytes.
class Blake2b256 {
 public:
  explicit Blake2b256(std::span<const std::byte> key = {});
  void update(std::span<const std::byte> bytes);
  Digest256 finish();  // once

 private:
  alignas(64) std::array<std::byte, 384> state_;
};

Digest256 random_256();  // from the operating system's generator

// 64 bits of a digest, for bucket choice only: equality always compares whole digests.
struct Digest256Hash {
  size_t operator()(const Digest256& digest) const;
};

uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed = 0);

struct Check128 {
  uint64_t low = 0, high = 0;
  bool operator==(const Check128&) const = default;
};
// XXH3-128 of the pieces one after the other.
Check128 xxh3_128(std::initializer_list<std::span<const std::byte>> pieces);

}  // namespace deepinfer
