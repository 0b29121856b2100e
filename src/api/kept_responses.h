// The endpoints of responses that are kept or being made: look, list the input, remove, cancel; and the items that a later request goes on
// from. On a worker: the store waits for the disk.
#pragma once

#include <boost/json/array.hpp>
#include <optional>
#include <string>

#include "api/prepare.h"
#include "api/service.h"

namespace deepinfer::api {

// Call::endpoint is kResponse, kResponseCancel or kResponseInputItems.
Outcome answer_kept_response(Service& service, const Call& call);

// What a response was made from and what it gave, oldest first, through the responses before it. nullopt: it, or one before it, is not
// there (any more), or the chain is longer than anything sensible.
std::optional<boost::json::array> stored_items(Service& service, const std::string& id, const std::string& tenant);

// An item of a kept response's output. nullopt: there is none of this id.
std::optional<boost::json::value> stored_item(Service& service, const std::string& id, const std::string& tenant);

}  // namespace deepinfer::api
