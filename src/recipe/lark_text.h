// Texts in grammars of llguidance's Lark: a literal, and a literal within a /pattern/.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer::recipe {

std::string lark_string(std::string_view text);  // with its quotes
std::string regex_text(std::string_view text);   // for inside of /…/

}  // namespace deepinfer::recipe
