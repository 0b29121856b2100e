#include "recipe/dialect.h"

#include <array>
#include <utility>

#include "recipe/json_reader.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

constexpr std::array<std::pair<Dialect, std::string_view>, 4> kNames = {{
    {Dialect::kTemplate, "template"},
    {Dialect::kV4Preview, "v4-preview"},
    {Dialect::kV4, "v4"},
    {Dialect::kV41, "v4.1"},
}};

bool has_dspark_key(const json::object& object) {
  for (const auto& [key, value] : object) {
    if (std::string_view(key).starts_with("dspark_")) return true;
  }
  const json::value* text = object.if_contains("text_config");
  return text != nullptr && text->is_object() && has_dspark_key(text->get_object());
}

bool has_dspark_key(std::string_view config_json) {
  const std::optional<json::value> config = parse_json(config_json);
  return config && config->is_object() && has_dspark_key(config->get_object());
}

}  // namespace

std::string_view dialect_name(Dialect dialect) {
  for (const auto& [value, name] : kNames) {
    if (value == dialect) return name;
  }
  return {};
}

std::optional<Dialect> dialect_of_name(std::string_view name) {
  for (const auto& [value, spelling] : kNames) {
    if (spelling == name) return value;
  }
  return std::nullopt;
}

Dialect pick_dialect(std::string_view config_json, const tokenizer::Tokenizer& tokenizer) {
  if (!tokenizer.special_id("｜DSML｜")) return Dialect::kTemplate;
  if (tokenizer.special_id("<｜System｜>") || tokenizer.special_id("<｜deepseek_image｜>")) return Dialect::kV41;
  return has_dspark_key(config_json) ? Dialect::kV4 : Dialect::kV4Preview;
}

}  // namespace deepinfer::recipe
