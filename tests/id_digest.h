// How golden files abbreviate long lists of token ids: the SHA-256 of the ids in decimal, spaces between.
#pragma once

#include <sodium.h>
#include <string>
#include <string_view>
#include <vector>

#include "core/request.h"

namespace deepinfer::testing {

inline std::string sha256(std::string_view text) {  // in hexadecimal
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(digest, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  static const char kHex[] = "0123456789abcdef";
  std::string hex;
  for (const unsigned char b : digest) hex += {kHex[b >> 4], kHex[b & 15]};
  return hex;
}

inline std::string decimal(const std::vector<TokenId>& ids) {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) out += (i ? " " : "") + std::to_string(ids[i]);
  return out;
}

}  // namespace deepinfer::testing
