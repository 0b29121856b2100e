#include "recipe/output_format.h"

#include <fmt/format.h>

#include <array>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <optional>

#include "recipe/json_reader.h"
#include "recipe/structural_tag.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

constexpr std::string_view kField = "structured_outputs";
constexpr std::array<std::string_view, 6> kKinds = {"json", "json_object", "regex", "choice", "grammar", "structural_tag"};

// An object, or a text that is one.
std::optional<json::object> object_of(FieldReader& fields, std::string_view key) {
  const json::value* value = fields.value(key);
  if (value == nullptr) return std::nullopt;
  if (const json::object* object = value->if_object()) return *object;
  if (const json::string* text = value->if_string()) {
    Result<json::object> parsed = read_json_object(std::string(*text));
    if (parsed) return std::move(*parsed);
  }
  fields.fail(key, fields.path_of(key) + " must be a JSON object");
  return std::nullopt;
}

std::string choice_spec(FieldReader& fields, const json::array& choices) {
  if (choices.empty()) fields.fail("choice", fields.path_of("choice") + " must not be empty");
  for (const json::value& choice : choices) {
    if (!choice.is_string()) fields.fail("choice", fields.path_of("choice") + " must hold strings");
  }
  return json::serialize(json::object{{"kind", "choice"}, {"choices", choices}});
}

std::string spec_of(FieldReader& given, std::string_view kind, bool compact) {
  if (kind == "json") {
    const std::optional<json::object> schema = object_of(given, kind);
    return schema ? schema_spec(*schema, compact) : "";
  }
  if (kind == "json_object") {
    if (!given.boolean(kind).value_or(false)) given.fail(kind, given.path_of(kind) + " must be true, or absent");
    return schema_spec(json::object{{"type", "object"}}, compact);
  }
  if (kind == "choice") {
    const json::array* choices = given.array(kind);
    return choices != nullptr ? choice_spec(given, *choices) : "";
  }
  if (kind == "structural_tag") {
    const std::optional<json::object> tag = object_of(given, kind);
    if (!tag) return "";
    FieldReader inner(*tag, given.path_of(kind), given.problems());
    return structural_tag_spec(inner);
  }
  const json::string* text = given.string(kind);
  if (text == nullptr) return "";
  return kind == "regex" ? pattern_spec(*text) : json::serialize(json::object{{"kind", "lark"}, {"grammar", *text}});
}

void read_structured_outputs(FieldReader& fields, OutputFormat& out) {
  const json::object* object = fields.object(kField);
  if (object == nullptr) return;
  FieldReader given(*object, std::string(kField), fields.problems());
  if (given.value("whitespace_pattern") != nullptr) {
    given.fail("whitespace_pattern", "structured_outputs.whitespace_pattern is not supported: white space is bounded; see disable_any_whitespace");
  }
  const bool compact = given.boolean("disable_any_whitespace").value_or(false);
  std::string_view kind;
  for (const std::string_view candidate : kKinds) {
    if (given.value(candidate) == nullptr) continue;
    if (!kind.empty()) return given.fail(candidate, fmt::format("structured_outputs has both {} and {}; it takes one", kind, candidate));
    kind = candidate;
  }
  if (kind.empty()) return fields.fail(kField, "structured_outputs must have one of json, json_object, regex, choice, grammar, structural_tag");
  out = {.spec = spec_of(given, kind, compact), .field = given.path_of(kind)};
}

void refuse_other_notations(FieldReader& fields) {
  for (const std::string_view key : {"grammar", "ebnf"}) {
    if (fields.value(key) != nullptr) {
      fields.fail(key, fmt::format("{} is in a notation that is not supported; structured_outputs.grammar takes a Lark grammar", key));
    }
  }
  for (const std::string_view key : {"guided_json", "guided_regex", "guided_choice", "guided_grammar"}) {
    if (fields.value(key) != nullptr) fields.fail(key, fmt::format("{} is not supported; use structured_outputs", key));
  }
}

}  // namespace

std::string schema_spec(const json::value& schema, bool compact) {
  return json::serialize(json::object{{"kind", "json_schema"}, {"schema", schema}, {"compact", compact}});
}

std::string pattern_spec(std::string_view pattern) { return json::serialize(json::object{{"kind", "regex"}, {"pattern", pattern}}); }

void read_output_format(FieldReader& fields, OutputFormat& out) {
  refuse_other_notations(fields);
  read_structured_outputs(fields, out);
  const auto set = [&](std::string_view key, std::string spec) {
    if (!out.spec.empty()) return fields.fail(key, fmt::format("{} and {} both constrain the answer; one may", out.field, key));
    out = {.spec = std::move(spec), .field = std::string(key)};
  };
  if (const json::object* schema = fields.object("json_schema")) set("json_schema", schema_spec(*schema));
  if (const json::string* pattern = fields.string("regex")) set("regex", pattern_spec(*pattern));
}

void read_format_extension(FieldReader& format, OutputFormat& out) {
  const json::string* type = format.string("type");
  if (type == nullptr || (*type != "regex" && *type != "structural_tag")) return;
  if (!out.spec.empty()) return format.fail("type", fmt::format("{} and the response format both constrain the answer; one may", out.field));
  out.field = "response_format";
  if (*type == "structural_tag") {
    out.spec = structural_tag_spec(format);
    return;
  }
  for (const std::string_view key : {"pattern", "regex"}) {
    if (const json::string* pattern = format.string(key)) out.spec = pattern_spec(*pattern);
  }
  if (out.spec.empty()) format.fail("pattern", format.path_of("pattern") + " is missing");
}

}  // namespace deepinfer::recipe
