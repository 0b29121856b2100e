// Base64 (RFC 4648) by libsodium.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

enum class Base64 { kStandard, kUrlUnpadded };  // "+/" with "=" at the end; "-_" without

std::string encode_base64(std::string_view bytes, Base64 variant = Base64::kStandard);

// nullopt: not base64 of that variant to its end.
std::optional<std::string> decode_base64(std::string_view text, Base64 variant = Base64::kStandard);

}  // namespace deepinfer
