#include "apps/version.h"

namespace deepinfer::apps {

std::string_view version() { return "0.1.0"; }

}  // namespace deepinfer::apps
