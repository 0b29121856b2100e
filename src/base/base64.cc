#include "base/base64.h"

#include <sodium.h>

namespace deepinfer {
namespace {

int sodium_variant(Base64 variant) {
  return variant == Base64::kStandard ? sodium_base64_VARIANT_ORIGINAL : sodium_base64_VARIANT_URLSAFE_NO_PADDING;
}

}  // namespace

std::string encode_base64(std::string_view bytes, Base64 variant) {
  std::string out(sodium_base64_encoded_len(bytes.size(), sodium_variant(variant)), '\0');
  sodium_bin2base64(out.data(), out.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), sodium_variant(variant));
  out.pop_back();  // the terminator
  return out;
}

std::optional<std::string> decode_base64(std::string_view text, Base64 variant) {
  std::string out(text.size() / 4 * 3 + 3, '\0');
  size_t size = 0;
  const char* end = nullptr;
  const int bad = sodium_base642bin(reinterpret_cast<unsigned char*>(out.data()), out.size(), text.data(), text.size(), nullptr, &size, &end, sodium_variant(variant));
  if (bad != 0 || end != text.data() + text.size()) return std::nullopt;
  out.resize(size);
  return out;
}

}  // namespace deepinfer
