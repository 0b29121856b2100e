#include "recipe/tool_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <set>

#include "recipe/fields.h"
#include "recipe/lark_text.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

// What a raw text may be, as a terminal that ends with the "</" behind it: a longer terminal would swallow a separate one.
constexpr std::string_view kAnyText = R"(/(?s:.*)<\//)";

constexpr std::string_view kAnnotations[] = {"type", "title", "description", "default", "examples", "$comment"};

bool is_annotation(std::string_view key) { return std::find(std::begin(kAnnotations), std::end(kAnnotations), key) != std::end(kAnnotations); }

std::string quoted(std::string_view text) { return lark_string(text); }

// A parameter's schema as a document of its own. References count from the root of all parameters: of what they name there the document has a
// copy among its definitions.
class Document {
 public:
  explicit Document(const json::object& parameters) : parameters_(parameters) {
    const json::value* definitions = parameters.if_contains("$defs");
    while (definitions != nullptr && definitions->is_object() && definitions->get_object().contains(root_)) root_ += '_';
  }

  json::value of(const json::value& schema) {
    if (!schema.is_object()) return schema;  // true or false
    json::object out;
    for (const auto& [key, value] : schema.get_object()) {
      if (!is_definitions(key)) out[key] = member(key, value);
    }
    for (const std::string_view key : kDefinitions) {
      if (const json::value* definitions = parameters_.if_contains(key)) out[key] = member(key, *definitions);
    }
    if (!names_root_) return out;
    const json::value root = relocated(parameters_, /*names=*/false);
    json::value& definitions = out[kDefinitions[0]];
    if (!definitions.is_object()) definitions = json::object();
    definitions.get_object()[root_] = root;
    return out;
  }

 private:
  static constexpr std::string_view kDefinitions[] = {"$defs", "definitions"};
  static bool is_definitions(std::string_view key) { return std::find(std::begin(kDefinitions), std::end(kDefinitions), key) != std::end(kDefinitions); }
  static bool holds_names(std::string_view key) { return is_definitions(key) || key == "properties" || key == "patternProperties"; }
  static bool holds_data(std::string_view key) { return key == "enum" || key == "const" || key == "default" || key == "examples"; }

  json::value member(std::string_view key, const json::value& value) {
    if (key == "$ref" && value.is_string()) return reference(value.get_string());
    return holds_data(key) ? value : relocated(value, holds_names(key));
  }

  // names: the members of an object are of anybody's naming.
  json::value relocated(const json::value& value, bool names) {
    if (const json::array* list = value.if_array()) {
      json::array out;
      for (const json::value& element : *list) out.push_back(relocated(element, false));
      return out;
    }
    if (!value.is_object()) return value;
    json::object out;
    for (const auto& [key, inner] : value.get_object()) out[key] = names ? relocated(inner, false) : member(key, inner);
    return out;
  }

  json::value reference(std::string_view to) {
    const bool in_root = to == "#" || (to.starts_with("#/") && !to.starts_with("#/$defs/") && !to.starts_with("#/definitions/"));
    if (!in_root) return json::string(to);
    names_root_ = true;
    return json::string(fmt::format("#/$defs/{}{}", root_, to.substr(1)));
  }

  const json::object& parameters_;
  std::string root_ = "tool_parameters";
  bool names_root_ = false;
};

class Writer {
 public:
  explicit Writer(const ToolGrammar& wanted) : wanted_(wanted), mark_(fmt::format("<[{}]>", wanted.dsml)) {}

  Result<std::string> write() {
    std::string calls;
    for (size_t i = 0; i < wanted_.tools.size(); ++i) calls += fmt::format("{}call_{}", i > 0 ? " | " : "", i);
    const std::string more = wanted_.single_call ? "" : fmt::format(R"( ("\n<" {} call)*)", mark_);
    const std::string rest = fmt::format(R"({0} call{1} "\n</" {0} {2})", mark_, more, quoted(fmt::format("{}>", wanted_.names.block)));
    const std::string opening = fmt::format(R"({} {} "\n<")", mark_, quoted(fmt::format("{}>", wanted_.names.block)));
    if (wanted_.opened) {
      grammar_ = fmt::format("start: \"<\" {}\n", rest);
    } else if (wanted_.only_calls) {
      grammar_ = fmt::format("start: \"\\n\\n<\" {} {}\n", opening, rest);
    } else if (wanted_.answer != nullptr) {
      add_schema("answer", *wanted_.answer, "the response format");
      grammar_ = fmt::format("start: @answer | \"\\n\\n<\" {} {}\n", opening, rest);
    } else {
      grammar_ = fmt::format("start: TEXT | BEFORE {} {}\nTEXT: /(?s:.*)/\nBEFORE: /(?s:.*)\\n\\n</\n", opening, rest);
    }
    grammar_ += fmt::format("call: {}\n", calls);
    for (size_t i = 0; i < wanted_.tools.size(); ++i) add_tool(wanted_.tools[i], i);
    if (!refusal_.empty()) return Error{Code::kInvalidArgument, std::move(refusal_)};
    return json::serialize(json::object{{"kind", "lark"}, {"grammar", grammar_}, {"schemas", std::move(schemas_)}});
  }

 private:
  void add_schema(std::string_view name, const json::value& schema, std::string_view label) {
    schemas_.push_back(json::object{{"name", name}, {"schema", schema}, {"label", label}});
  }

  void add_tool(const ToolDefinition& tool, size_t index) {
    const std::string begin = quoted(fmt::format("{} name=\"{}\">", wanted_.names.invoke, tool.name));
    const std::string end = fmt::format("{} {}", mark_, quoted(fmt::format("{}>", wanted_.names.invoke)));
    const json::object* parameters = tool.parameters.if_object();
    const json::object* properties = nullptr;
    if (parameters != nullptr) {
      if (const json::value* given = parameters->if_contains("properties")) properties = given->if_object();
    }
    std::string body;
    bool any_required = true;
    const bool strict = tool.strict.value_or(false);
    const std::optional<std::string> unkept = parameters != nullptr ? said_of_the_whole(*parameters, properties) : std::nullopt;
    if (strict && unkept && refusal_.empty()) refusal_ = fmt::format("the schema of the tool {}: {}", tool.name, *unkept);
    const bool by_schema = strict || (wanted_.all_by_schema && names_all(parameters, properties) && !unkept);
    if (!by_schema || parameters == nullptr) {
      body = free_parameters();
      any_required = false;
    } else {
      body = parameters_by_schema(tool, index, *parameters, properties, any_required);
    }
    // A call without parameters has an empty line between its tags, or none.
    const std::string close = any_required ? R"("\n</")" : R"(("\n</" | "\n\n</"))";
    grammar_ += fmt::format("call_{}: {} {} {} {}\n", index, begin, body, close, end);
  }

  // Whether there are only the parameters that a schema names: it does not say that there are more.
  static bool names_all(const json::object* parameters, const json::object* properties) {
    if (properties == nullptr) return false;
    const json::value* more = parameters->if_contains("additionalProperties");
    return more == nullptr || *more == false;
  }

  // A call is written parameter by parameter: what a schema says of all of them together, beyond which there are and which must be, would not be
  // kept. Nor can a name be written that holds a quote, which ends it. What of that there is, and where.
  static std::optional<std::string> said_of_the_whole(const json::object& parameters, const json::object* properties) {
    const auto at_root = [](std::string_view keyword, std::string_view why) { return fmt::format("keyword \"{}\" at its root: {}", keyword, why); };
    for (const std::string_view keyword : {"$ref", "allOf", "anyOf", "oneOf", "const", "enum", "patternProperties"}) {
      if (parameters.contains(keyword)) return at_root(keyword, "of all parameters together it is not supported");
    }
    const auto declared = [&](std::string_view name) { return properties != nullptr && properties->contains(name); };
    std::set<std::string_view> required;
    if (const json::value* list = parameters.if_contains("required"); list != nullptr && list->is_array()) {
      for (const json::value& name : list->get_array()) {
        if (!name.is_string()) continue;  // the compiler's to refuse
        if (!declared(name.get_string())) return at_root("required", fmt::format("\"{}\" is not among the properties", quotable(name.get_string())));
        required.emplace(name.get_string());
      }
    }
    const auto bound = [&](std::string_view keyword) {
      const json::value* value = parameters.if_contains(keyword);
      return value != nullptr ? as_double(*value) : std::nullopt;
    };
    if (bound("minProperties").value_or(0) > static_cast<double>(required.size())) return at_root("minProperties", "more than those that are required");
    if (properties == nullptr) return std::nullopt;
    if (const auto most = bound("maxProperties"); most && *most < static_cast<double>(properties->size())) return at_root("maxProperties", "fewer than are declared");
    for (const auto& [name, schema] : *properties) {
      if (std::string_view(name).find('"') != std::string_view::npos) return at_root("properties", fmt::format("a name with a quote: {}", quotable(name)));
    }
    return std::nullopt;
  }

  std::string free_parameters() {
    if (!has_free_) {
      has_free_ = true;
      add_schema("any", json::object(), "any parameter");
      grammar_ += fmt::format(
          "free_parameter: \"\\n<\" {0} FREE_NAME ({1} | \" string=\\\"false\\\">\" @any \"</\") {0} {2}\nFREE_NAME: {3} /[^\"\\n<>]+/ \"\\\"\"\n", mark_,
          raw_value(kAnyText), quoted(fmt::format("{}>", wanted_.names.parameter)), quoted(fmt::format("{} name=\"", wanted_.names.parameter)));
    }
    return "free_parameter*";
  }

  static std::string raw_value(std::string_view terminal) { return fmt::format(R"(" string=\"true\">" {})", terminal); }

  std::string parameters_by_schema(const ToolDefinition& tool, size_t index, const json::object& parameters, const json::object* properties,
                                   bool& any_required) {
    // The whole schema is checked as one, so that what cannot be honoured anywhere in it is named with its place. Its rule is not used.
    add_schema(fmt::format("tool_{}", index), parameters, fmt::format("the tool {}", tool.name));
    any_required = false;
    if (properties == nullptr) return "";
    std::string first, then;
    for (const auto& [name, schema] : *properties) {
      const bool required = is_required(parameters, name);
      any_required |= required;
      const size_t id = num_parameters_++;
      grammar_ += fmt::format("parameter_{}: \"\\n<\" {} {} ({}) {} {}\n", id, mark_, quoted(fmt::format("{} name=\"{}\"", wanted_.names.parameter, std::string_view(name))),
                              values(parameters, schema, id, fmt::format("the parameter {} of the tool {}", std::string_view(name), tool.name)), mark_,
                              quoted(fmt::format("{}>", wanted_.names.parameter)));
      (required ? first : then) += fmt::format("parameter_{}{} ", id, required ? "" : "?");
    }
    return first + then;
  }

  static bool is_required(const json::object& parameters, std::string_view name) {
    const json::value* required = parameters.if_contains("required");
    const json::array* list = required != nullptr ? required->if_array() : nullptr;
    return list != nullptr && std::any_of(list->begin(), list->end(), [&](const json::value& one) { return one.is_string() && one.get_string() == name; });
  }

  // Ways to write a value of the schema.
  std::string values(const json::object& parameters, const json::value& schema, size_t id, const std::string& label) {
    if (const std::optional<std::string> raw = raw_text(schema, id)) return raw_value(*raw);
    add_schema(fmt::format("value_{}", id), Document(parameters).of(schema), label);
    return fmt::format(R"(" string=\"false\">" @value_{} "</")", id);
  }

  // A terminal for texts by a schema that is of a text and says nothing but what can be said of raw text.
  std::optional<std::string> raw_text(const json::value& value, size_t id) {
    const json::object* schema = value.if_object();
    if (schema == nullptr) return std::nullopt;
    const json::value* type = schema->if_contains("type");
    if (type == nullptr || *type != "string") return std::nullopt;
    std::vector<std::string_view> said;
    for (const auto& [key, unused] : *schema) {
      if (!is_annotation(key)) said.push_back(key);
    }
    if (said.empty()) return std::string(kAnyText);
    if (said.size() == 1 && said[0] == "enum") return one_of(schema->at("enum").if_array(), id);
    if (said.size() == 1 && said[0] == "const") {
      const json::array one = {schema->at("const")};
      return one_of(&one, id);
    }
    const bool lengths = std::all_of(said.begin(), said.end(), [](std::string_view key) { return key == "minLength" || key == "maxLength"; });
    return lengths ? of_length(*schema) : std::nullopt;
  }

  std::optional<std::string> one_of(const json::array* texts, size_t id) {
    if (texts == nullptr || texts->empty()) return std::nullopt;
    std::string terminal;
    for (const json::value& text : *texts) {
      if (!text.is_string()) return std::nullopt;
      terminal += fmt::format("{}{}", terminal.empty() ? "" : " | ", quoted(fmt::format("{}</", std::string_view(text.get_string()))));
    }
    grammar_ += fmt::format("ONE_OF_{}: {}\n", id, terminal);
    return fmt::format("ONE_OF_{}", id);
  }

  static std::optional<std::string> of_length(const json::object& schema) {
    const auto number = [&](std::string_view key) -> std::optional<int64_t> {
      const json::value* value = schema.if_contains(key);
      return value != nullptr && value->is_int64() && value->get_int64() >= 0 ? std::optional(value->get_int64()) : std::nullopt;
    };
    const std::optional<int64_t> min = number("minLength"), max = number("maxLength");
    if (schema.contains("minLength") != min.has_value() || schema.contains("maxLength") != max.has_value()) return std::nullopt;
    if (max && *max < min.value_or(0)) return std::nullopt;
    return fmt::format(R"(/(?s:.){{{},{}}}<\//)", min.value_or(0), max ? std::to_string(*max) : "");
  }

  const ToolGrammar& wanted_;
  const std::string mark_;
  std::string grammar_, refusal_;
  json::array schemas_;
  size_t num_parameters_ = 0;
  bool has_free_ = false;
};

}  // namespace

Result<std::string> tool_grammar_spec(const ToolGrammar& wanted) { return Writer(wanted).write(); }

}  // namespace deepinfer::recipe
