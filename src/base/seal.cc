#include "base/seal.h"

#include <sodium.h>
#include <vector>

#include "base/base64.h"
#include "base/check.h"
#include "base/hash.h"

namespace deepinfer {
namespace {

constexpr uint8_t kVersion = 1;  // authenticated with the context, so a later format cannot be taken for this one
constexpr size_t kNonce = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES, kTag = crypto_aead_xchacha20poly1305_ietf_ABYTES;

const unsigned char* chars_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

Sealer Sealer::with_random_key() {
  CHECK(sodium_init() >= 0);
  Sealer out;
  randombytes_buf(out.key_.data(), out.key_.size());
  return out;
}

Sealer Sealer::from_secret(std::string_view secret) {
  CHECK(sodium_init() >= 0);
  Sealer out;
  constexpr std::string_view kPurpose = "deepinfer sealed text";
  out.key_ = blake2b_256(std::as_bytes(std::span(secret)), std::as_bytes(std::span(kPurpose))).bytes;
  return out;
}

std::string Sealer::seal(std::string_view text, std::string_view context) const {
  std::vector<unsigned char> out(1 + kNonce + text.size() + kTag);
  out[0] = kVersion;
  randombytes_buf(&out[1], kNonce);
  unsigned long long length = 0;
  const int rc = crypto_aead_xchacha20poly1305_ietf_encrypt(&out[1 + kNonce], &length, chars_of(text), text.size(), chars_of(context), context.size(),
                                                            nullptr, &out[1], key_.data());
  CHECK(rc == 0);
  CHECK(length == text.size() + kTag);
  return encode_base64({reinterpret_cast<const char*>(out.data()), out.size()}, Base64::kUrlUnpadded);
}

std::optional<std::string> Sealer::open(std::string_view sealed, std::string_view context) const {
  const std::optional<std::string> decoded = decode_base64(sealed, Base64::kUrlUnpadded);
  if (!decoded || decoded->size() < 1 + kNonce + kTag || (*decoded)[0] != static_cast<char>(kVersion)) return std::nullopt;
  const unsigned char* in = chars_of(*decoded);
  const size_t size = decoded->size();
  std::string text(size - 1 - kNonce - kTag, '\0');
  unsigned long long length = 0;
  const int forged = crypto_aead_xchacha20poly1305_ietf_decrypt(reinterpret_cast<unsigned char*>(text.data()), &length, nullptr, &in[1 + kNonce],
                                                                size - 1 - kNonce, chars_of(context), context.size(), &in[1], key_.data());
  if (forged != 0) return std::nullopt;
  return text;
}

}  // namespace deepinfer
