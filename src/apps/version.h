// What `deepinfer --version` says.
#pragma once

#include <string_view>

namespace deepinfer::apps {

std::string_view version();

}  // namespace deepinfer::apps
