// Constraints that a request spells out itself, beyond what its protocol has for that (docs/structured-output.md): `structured_outputs`
// with one of json, json_object, regex, choice, grammar, structural_tag; at top level `json_schema` and `regex`; in response_format the
// types `regex` and `structural_tag`. All become a description that the engine reads (core/request.h, Constraint::spec).
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "recipe/fields.h"

namespace deepinfer::recipe {

struct OutputFormat {
  std::string spec;   // empty: none
  std::string field;  // that asked for it, for error messages
};

// The fields at top level. At most one may say something. Grammars in other notations than ours, and the names that other servers
// have given up, are refused: a constraint that is not honoured would go unseen.
void read_output_format(FieldReader& fields, OutputFormat& out);

// The types of Chat's response_format that are extensions; others are left alone.
void read_format_extension(FieldReader& format, OutputFormat& out);

// Descriptions. compact: JSON without spaces.
std::string schema_spec(const boost::json::value& schema, bool compact = false);
std::string pattern_spec(std::string_view pattern);

}  // namespace deepinfer::recipe
