// A parsed request for those who do not read our structs: programs in other languages, and people.
#pragma once

#include <boost/json/object.hpp>

#include "core/request.h"
#include "recipe/encode_request.h"
#include "recipe/protocol.h"

namespace deepinfer::recipe {

// {"ids": […], "segments": [{"text", "id" of a control token, "image"}], "images": [URL], "start": how the answer begins}
boost::json::object prompt_json(const EncodedRequest& encoded);

// The same with "conversation" (or, of completions, "text": what the request says) and "options": how to sample, and when to end.
// null: the request leaves it to the server.
boost::json::object request_json(const ParsedRequest& request, const EncodedRequest& encoded, const Constraint& constraint);

}  // namespace deepinfer::recipe
