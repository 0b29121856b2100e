// What `deepinfer --version` says: which source, which compiler, which instruction sets this machine offers to the kernels.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer::apps {

std::string_view version();       // git description: "0.1.0+1a2b3c4", "1.2.0-5-g1a2b3c4-dirty"
std::string version_text();       // three lines

}  // namespace deepinfer::apps
