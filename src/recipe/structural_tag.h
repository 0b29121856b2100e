// Structural tags: free text in which each occurrence of a trigger has to go on as one of the declared tags: `begin` (which starts with
// that trigger), JSON by the tag's schema, `end`.
//   {"triggers": ["<function="], "structures": [{"begin": "<function=f>", "schema": {…}, "end": "</function>"}]}
#pragma once

#include <string>

#include "recipe/fields.h"

namespace deepinfer::recipe {

// The engine's description of it. Reports what is wrong and gives an empty text then.
std::string structural_tag_spec(FieldReader& tag);

}  // namespace deepinfer::recipe
