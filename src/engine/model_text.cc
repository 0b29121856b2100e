#include "engine/model_text.h"

#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <simdjson.h>

#include "io/mapped_file.h"
#include "model/gguf_vocabulary.h"

namespace deepinfer::engine {
namespace {

namespace fs = std::filesystem;

// The largest that a configuration of these kinds is let be; tokenizer.json of 250,000 entries has 30 MB.
constexpr size_t kMaxTextFileBytes = 256u << 20;

// Empty if there is no such file.
Result<std::string> read_optional(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::string();
  return io::read_small_file(path.string(), kMaxTextFileBytes);
}

Result<> text_from_gguf(const model::GgufFile& file, ModelText& out) {
  DI_TRY(const model::GgufVocabularyData data, model::gguf_vocabulary(file));
  const tokenizer::GgufVocabulary vocabulary{
      .model = data.model, .pre = data.pre, .tokens = data.tokens, .scores = data.scores, .token_types = data.token_types, .merges = data.merges,
      .bos_id = data.bos_id, .eos_id = data.eos_id, .eot_id = data.eot_id, .unknown_id = data.unknown_id, .padding_id = data.padding_id,
      .add_bos = data.add_bos, .add_space_prefix = data.add_space_prefix};
  DI_TRY(out.tokenizer, tokenizer::Tokenizer::from_gguf(vocabulary, file.path()));
  if (data.chat_template) out.chat_template = *data.chat_template;
  out.chat_template_path = file.path() + ": tokenizer.chat_template";
  return {};
}

// The text of the entry named "default" in a list of {"name", "template"}.
std::optional<std::string> default_of(simdjson::ondemand::array list) {
  for (auto item : list) {
    simdjson::ondemand::object entry;
    std::string_view name, text;
    if (item.get_object().get(entry) != simdjson::SUCCESS) return std::nullopt;
    if (entry["name"].get(name) == simdjson::SUCCESS && name == "default" && entry["template"].get(text) == simdjson::SUCCESS) return std::string(text);
  }
  return std::nullopt;
}

// "chat_template" of tokenizer_config.json: a text, or a list of which "default" counts. Empty: there is none. Read on demand, since
// other members hold numbers that no integer type has (model_max_length: 1e30 spelt out).
Result<std::string> template_of(std::string_view config, const std::string& path) {
  const simdjson::padded_string padded(config);
  simdjson::ondemand::parser parser;
  simdjson::ondemand::document document;
  simdjson::ondemand::object object;
  if (parser.iterate(padded).get(document) != simdjson::SUCCESS || document.get_object().get(object) != simdjson::SUCCESS)
    return Error{Code::kCorruption, fmt::format("{}: not a JSON object", path)};
  simdjson::ondemand::value value;
  const auto found = object["chat_template"].get(value);
  if (found == simdjson::NO_SUCH_FIELD) return std::string();
  if (found != simdjson::SUCCESS) return Error{Code::kCorruption, fmt::format("{}: {}", path, simdjson::error_message(found))};
  simdjson::ondemand::json_type type;
  if (value.type().get(type) == simdjson::SUCCESS) {
    std::string_view text;
    if (type == simdjson::ondemand::json_type::null) return std::string();
    if (type == simdjson::ondemand::json_type::string && value.get(text) == simdjson::SUCCESS) return std::string(text);
    simdjson::ondemand::array list;
    if (type == simdjson::ondemand::json_type::array && value.get(list) == simdjson::SUCCESS)
      if (auto chosen = default_of(list)) return *std::move(chosen);
  }
  return Error{Code::kCorruption, fmt::format("{}: chat_template is neither a text nor a list with one named default", path)};
}

template <class T>
Result<> read_number(simdjson::dom::element config, const char* key, const std::string& path, double low, double high, std::optional<T>& out) {
  simdjson::dom::element value;
  if (config[key].get(value) != simdjson::SUCCESS || value.is_null()) return {};
  double number = 0;
  if (value.get(number) != simdjson::SUCCESS || !(number >= low && number <= high))
    return Error{Code::kCorruption, fmt::format("{}: {} is not a number from {} to {}", path, key, low, high)};
  out = static_cast<T>(number);
  return {};
}

Result<simdjson::dom::element> parse_object(simdjson::dom::parser& parser, const std::string& text, const std::string& path) {
  simdjson::dom::element root;
  if (const auto error = parser.parse(text).get(root); error != simdjson::SUCCESS)
    return Error{Code::kCorruption, fmt::format("{}: {}", path, simdjson::error_message(error))};
  if (!root.is_object()) return Error{Code::kCorruption, fmt::format("{}: not a JSON object", path)};
  return root;
}

Result<> read_generation_config(const fs::path& path, ModelText& out) {
  DI_TRY(const std::string text, read_optional(path));
  if (text.empty()) return {};
  simdjson::dom::parser parser;
  DI_TRY(const simdjson::dom::element root, parse_object(parser, text, path.string()));
  // do_sample false: the other values are leftovers, greedy is what the makers mean.
  bool do_sample = true;
  if (root["do_sample"].get(do_sample) == simdjson::SUCCESS && !do_sample) return {};
  DI_TRY(read_number(root, "temperature", path.string(), 0, 100, out.temperature));
  DI_TRY(read_number(root, "top_p", path.string(), 0, 1, out.top_p));
  DI_TRY(read_number(root, "min_p", path.string(), 0, 1, out.min_p));
  DI_TRY(read_number(root, "repetition_penalty", path.string(), 1e-3, 1e3, out.repetition_penalty));
  DI_TRY(read_number(root, "top_k", path.string(), 0, 1e9, out.top_k));
  return {};
}

Result<> text_from_folder(const fs::path& folder, ModelText& out) {
  const fs::path json_path = folder / "tokenizer.json", config_path = folder / "tokenizer_config.json", jinja_path = folder / "chat_template.jinja";
  DI_TRY(const std::string json, read_optional(json_path));
  if (json.empty()) return Error{Code::kNotFound, fmt::format("{}: the tokenizer is missing", json_path.string())};
  DI_TRY(const std::string config, read_optional(config_path));
  DI_TRY(out.tokenizer, tokenizer::Tokenizer::from_json(json, config, json_path.string()));
  DI_TRY(out.config_json, read_optional(folder / "config.json"));
  DI_TRY(out.chat_template, read_optional(jinja_path));
  out.chat_template_path = jinja_path.string();
  if (out.chat_template.empty() && !config.empty()) {
    DI_TRY(out.chat_template, template_of(config, config_path.string()));
    out.chat_template_path = config_path.string();
  }
  return read_generation_config(folder / "generation_config.json", out);
}

}  // namespace

Result<ModelText> read_model_text(const model::ModelFile& file) {
  ModelText out;
  if (file.gguf != nullptr) {
    DI_TRY(text_from_gguf(*file.gguf, out));
  } else {
    DI_TRY(text_from_folder(file.folder, out));
  }
  return out;
}

}  // namespace deepinfer::engine
