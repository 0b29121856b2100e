// Base64 (RFC 4648) for bytes inside JSON.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer::trace {

std::string encode_base64(std::string_view bytes);
std::string decode_base64(std::string_view text);  // either alphabet; what belongs to neither ends it

}  // namespace deepinfer::trace
