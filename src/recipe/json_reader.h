// A client's body to a JSON object: simdjson checks and reads (UTF-8, depth, numbers), Boost.JSON holds. The rules that clients
// depend on are here: a lone surrogate escape, which clients write that cut strings in UTF-16, becomes U+FFFD instead of an error; a key
// that appears twice in one object is refused, for whoever checks a request in front of this server may have read the other one; an integer of
// more than 64 bits is the double next to it, as it is for most readers of JSON.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer::recipe {

constexpr size_t kMaxJsonDepth = 256;

// Errors: kInvalidArgument, worded for the client. Takes the body by value: it is changed in place and gets simdjson's padding.
Result<boost::json::object> read_json_object(std::string body);

// A text that is not a client's body: a model's, or our own. As deep as any that was made of a body, which the library's default is not.
// nullopt: it is no JSON.
std::optional<boost::json::value> parse_json(std::string_view text);

// Replaces escapes of lone surrogates by \ufffd, which has as many bytes. Exposed for its test.
void replace_lone_surrogates(std::string& json);

}  // namespace deepinfer::recipe
