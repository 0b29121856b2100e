// The manual page deepinfer(1) in roff, from the flag table.
#pragma once

#include <string>

#include "apps/flag_table.h"

namespace deepinfer::apps {

std::string man_page(const CommandRow& root);

}  // namespace deepinfer::apps
