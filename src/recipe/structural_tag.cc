#include "recipe/structural_tag.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <vector>

#include "recipe/lark_text.h"
#include "recipe/request_parts.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

struct Tag {
  std::string begin, end;
  json::value schema;
};

std::vector<std::string> read_triggers(FieldReader& tag) {
  std::vector<std::string> out;
  const json::array* triggers = tag.array("triggers");
  if (triggers == nullptr || triggers->empty()) {
    tag.fail("triggers", tag.path_of("triggers") + " is missing");
    return out;
  }
  for (const json::value& value : *triggers) {
    const json::string* text = value.if_string();
    if (text == nullptr || text->empty()) {
      tag.fail("triggers", tag.path_of("triggers") + " must hold strings that are not empty");
      return out;
    }
    out.emplace_back(*text);
  }
  return out;
}

std::vector<Tag> read_structures(FieldReader& tag) {
  std::vector<Tag> out;
  const json::array* structures = tag.array("structures");
  if (structures == nullptr || structures->empty()) tag.fail("structures", tag.path_of("structures") + " is missing");
  for (size_t i = 0; structures != nullptr && i < structures->size() && !tag.failed(); ++i) {
    const std::string path = element_path(tag.path_of("structures"), i);
    const json::object* object = (*structures)[i].if_object();
    if (object == nullptr) {
      tag.problems().report(path, path + " must be an object");
      break;
    }
    FieldReader one(*object, path, tag.problems());
    const json::string* begin = one.string("begin");
    const json::string* end = one.string("end");
    const json::object* schema = one.object("schema");
    if (begin == nullptr) one.fail("begin", path + ".begin is missing");
    if (end == nullptr) one.fail("end", path + ".end is missing");
    if (schema == nullptr) one.fail("schema", path + ".schema is missing");
    if (!tag.failed()) out.push_back({.begin = std::string(*begin), .end = std::string(*end), .schema = *schema});
  }
  return out;
}

}  // namespace

// A lazy terminal ends with the first trigger, so text before it holds none; the rest of the text must not hold any.
std::string structural_tag_spec(FieldReader& tag) {
  if (tag.value("format") != nullptr) tag.fail("format", tag.path_of("format") + " is not supported; use triggers and structures");
  const std::vector<std::string> triggers = read_triggers(tag);
  const std::vector<Tag> tags = read_structures(tag);
  if (tag.failed()) return "";
  std::string any, groups, rules;
  json::array schemas;
  std::vector<bool> used(tags.size());
  for (size_t t = 0; t < triggers.size(); ++t) {
    any += (t > 0 ? "|" : "") + regex_text(triggers[t]);
    std::string bodies;
    for (size_t i = 0; i < tags.size(); ++i) {
      if (used[i] || !tags[i].begin.starts_with(triggers[t])) continue;
      used[i] = true;
      bodies += fmt::format("{}{} @s{} {}", bodies.empty() ? "" : " | ", lark_string(std::string_view(tags[i].begin).substr(triggers[t].size())), i,
                            lark_string(tags[i].end));
    }
    if (bodies.empty()) {
      tag.fail("triggers", fmt::format("{}: no structure begins with \"{}\"", tag.path_of("triggers"), quotable(triggers[t])));
      return "";
    }
    groups += fmt::format("{}trigger_{} ({})", t > 0 ? " | " : "", t, bodies);
    rules += fmt::format("trigger_{}[lazy]: /(?s:.*){}/\n", t, regex_text(triggers[t]));
  }
  for (size_t i = 0; i < tags.size(); ++i) {
    const std::string path = element_path(tag.path_of("structures"), i);
    if (!used[i]) {
      tag.problems().report(path, path + ".begin starts with none of the triggers");
      return "";
    }
    schemas.push_back(json::object{{"name", fmt::format("s{}", i)}, {"schema", tags[i].schema}, {"label", path}});
  }
  const std::string grammar = fmt::format("start: ({})* TEXT\nTEXT: /(?s:.*)/ & ~/(?s:.*)({})(?s:.*)/\n{}", groups, any, rules);
  return json::serialize(json::object{{"kind", "lark"}, {"grammar", grammar}, {"schemas", std::move(schemas)}});
}

}  // namespace deepinfer::recipe
