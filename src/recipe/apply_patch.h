// The one custom tool that DeepSeek's models know: coding agents declare it without saying how it is written, and the model is told here.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>

#include "recipe/dialect.h"

namespace deepinfer::recipe {

constexpr std::string_view kApplyPatchName = "apply_patch";
std::string apply_patch_description(Dialect dialect);
boost::json::object apply_patch_parameters();  // a schema with the one member `input`

}  // namespace deepinfer::recipe
