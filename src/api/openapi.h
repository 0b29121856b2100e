// The description of every endpoint for tools: what GET /openapi.json answers.
#pragma once

#include <string_view>

namespace deepinfer::api {

std::string_view openapi_document();

}  // namespace deepinfer::api
