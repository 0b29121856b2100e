// ByteReader: little-endian numbers from untrusted bytes. Sticky: a read past the end gives 0 and leaves ok() false for good,
// so a decoder may read a whole header and look once. It never reads outside its span.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace deepinfer {

static_assert(std::endian::native == std::endian::little, "file formats are read in place");

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  uint8_t u8() { return number<uint8_t>(); }
  uint16_t u16() { return number<uint16_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  float f32() { return number<float>(); }

  template <class T>
  T number() {
    T value{};
    const auto source = take(sizeof(T));
    if (!source.empty()) std::memcpy(&value, source.data(), sizeof(T));
    return value;
  }

  // The next n bytes, or an empty span (and ok() false) if there are fewer.
  std::span<const std::byte> take(uint64_t n) {
    if (!ok_ || n > remaining()) {
      ok_ = false;
      return {};
    }
    const auto out = bytes_.subspan(position_, static_cast<size_t>(n));
    position_ += static_cast<size_t>(n);
    return out;
  }
  std::string_view text(uint64_t n) {
    const auto bytes = take(n);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
  bool ok_ = true;
};

}  // namespace deepinfer
