// Tokenizers from a tokenizer.json (the format of the Hugging Face `tokenizers` library) and its tokenizer_config.json. Each member that
// changes ids is either understood exactly or refused by name; patterns are recognised as strings, not interpreted.
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "tokenizer/source.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::tokenizer {
namespace {

namespace dom = simdjson::dom;
namespace ondemand = simdjson::ondemand;

// A member, or nothing if it is absent or null.
std::optional<dom::element> member(const dom::element& object, std::string_view key) {
  dom::element value;
  if (object[key].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}
std::string_view text_member(const dom::element& object, std::string_view key) {
  std::string_view text;
  const auto value = member(object, key);
  if (value && value->get(text) != simdjson::SUCCESS) return {};
  return text;
}
bool bool_member(const dom::element& object, std::string_view key, bool absent) {
  bool flag = absent;
  const auto value = member(object, key);
  if (value && value->get(flag) != simdjson::SUCCESS) return absent;
  return flag;
}
std::optional<dom::array> array_member(const dom::element& object, std::string_view key) {
  dom::array array;
  const auto value = member(object, key);
  if (!value || value->get(array) != simdjson::SUCCESS) return std::nullopt;
  return array;
}
std::string in_quotes(std::string_view text) {
  constexpr size_t kMaxShown = 120;
  return "\"" + std::string(text.substr(0, kMaxShown)) + (text.size() > kMaxShown ? "…\"" : "\"");
}

// What the parts of the file add up to, before it is known which kind of tokenizer it is.
struct Shape {
  bool byte_level = false;
  bool byte_fallback = false;
  bool prepend_space = false, replace_space = false;  // the normalisers of SentencePiece
  std::vector<std::string> splits;                    // names of the pre-tokenizer's steps, in order
  std::optional<std::string> template_start;          // the special token that the post-processor puts first
};

// --- normalizer ---

Result<> read_normalizer(const dom::element& node, Source& source, Shape& shape, int depth) {
  const std::string_view type = text_member(node, "type");
  if (type == "Sequence" && depth == 0) {
    const auto steps = array_member(node, "normalizers");
    if (!steps) return source.error(Code::kCorruption, "normalizer Sequence without normalizers");
    for (const dom::element step : *steps) DI_TRY(read_normalizer(step, source, shape, depth + 1));
    return {};
  }
  if (type == "NFC") {
    source.nfc = true;
    return {};
  }
  if (type == "Prepend" && text_member(node, "prepend") == "▁" && !shape.replace_space) {
    shape.prepend_space = true;
    return {};
  }
  if (type == "Replace" && text_member(node, "content") == "▁") {
    const auto pattern = member(node, "pattern");
    if (pattern && text_member(*pattern, "String") == " ") {
      shape.replace_space = true;
      return {};
    }
  }
  return source.error(Code::kUnsupported, "normalizer " + in_quotes(type));
}

// --- pre_tokenizer ---

struct KnownPattern {
  std::string_view step;  // what read_pre_tokenizer() makes of it
  std::string_view regex;
  bool covers = true;     // matches all of any text, so that "Removed, inverted" is the same as "Isolated"
};
// The same pattern occurs with CR and LF as escapes and as themselves; they are compared with escapes.
constexpr KnownPattern kPatterns[] = {
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {"gpt2", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {"llama3", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen2", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"digits", R"(\p{N})", false},
    {"digits3", R"(\p{N}{1,3})", false},
    {"cjk", "[一-龥\u3040-ゟ゠-ヿ]+", false},
    {"deepseek3",
     R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false},
};

// CR and LF as \r and \n, and \" (an escape that means the quote itself) as ".
std::string with_escapes(std::string_view regex) {
  std::string out;
  for (size_t i = 0; i < regex.size(); ++i) {
    if (regex[i] == '\r') {
      out += "\\r";
    } else if (regex[i] == '\n') {
      out += "\\n";
    } else if (regex[i] == '\\' && i + 1 < regex.size()) {
      if (regex[i + 1] != '"') out += '\\';
      out += regex[++i];
    } else {
      out += regex[i];
    }
  }
  return out;
}

Result<> read_split(const dom::element& node, const Source& source, Shape& shape) {
  const auto pattern = member(node, "pattern");
  const std::string_view regex = pattern ? text_member(*pattern, "Regex") : std::string_view();
  if (regex.empty()) return source.error(Code::kUnsupported, "pre_tokenizer Split without a Regex pattern");
  const std::string canonical = with_escapes(regex);
  const auto* const known = std::find_if(std::begin(kPatterns), std::end(kPatterns), [&](const KnownPattern& p) { return p.regex == canonical; });
  if (known == std::end(kPatterns)) return source.error(Code::kUnsupported, "pre_tokenizer Split with the pattern " + in_quotes(regex));
  const std::string_view behavior = text_member(node, "behavior");
  const bool invert = bool_member(node, "invert", false);
  if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert && known->covers)) {
    return source.error(Code::kUnsupported, "pre_tokenizer Split with the behavior " + in_quotes(behavior) + (invert ? ", inverted" : ""));
  }
  shape.splits.emplace_back(known->step);
  return {};
}

Result<> read_pre_tokenizer(const dom::element& node, Source& source, Shape& shape, int depth) {
  const std::string_view type = text_member(node, "type");
  if (type == "Sequence" && depth == 0) {
    const auto steps = array_member(node, "pretokenizers");
    if (!steps) return source.error(Code::kCorruption, "pre_tokenizer Sequence without pretokenizers");
    for (const dom::element step : *steps) DI_TRY(read_pre_tokenizer(step, source, shape, depth + 1));
    return {};
  }
  if (shape.byte_level) return source.error(Code::kUnsupported, "pre_tokenizer " + in_quotes(type) + " after ByteLevel");
  if (type == "Split") return read_split(node, source, shape);
  if (type == "Digits") {
    if (!bool_member(node, "individual_digits", false)) {
      return source.error(Code::kUnsupported, "pre_tokenizer Digits without individual_digits");
    }
    shape.splits.emplace_back("digits");
    return {};
  }
  if (type == "ByteLevel") {
    if (bool_member(node, "add_prefix_space", true)) return source.error(Code::kUnsupported, "pre_tokenizer ByteLevel with add_prefix_space");
    if (bool_member(node, "use_regex", true)) shape.splits.emplace_back("gpt2");
    shape.byte_level = true;
    return {};
  }
  return source.error(Code::kUnsupported, "pre_tokenizer " + in_quotes(type));
}

Result<Splitter> splitter_of(const Source& source, const Shape& shape) {
  struct Known {
    Splitter splitter;
    std::vector<std::string> steps;
  };
  const Known known[] = {
      {Splitter::kNone, {}},
      {Splitter::kGpt2, {"gpt2"}},
      {Splitter::kDigitsGpt2, {"digits", "gpt2"}},
      {Splitter::kLlama3, {"llama3"}},
      {Splitter::kQwen2, {"qwen2"}},
      {Splitter::kDeepSeek3, {"digits3", "cjk", "deepseek3"}},
  };
  for (const Known& k : known) {
    if (k.steps == shape.splits) return k.splitter;
  }
  std::string steps;
  for (const std::string& step : shape.splits) steps += (steps.empty() ? "" : ", ") + step;
  return source.error(Code::kUnsupported, "pre_tokenizer with the steps " + steps + " together");
}

// --- post_processor: only what stands in front of a text matters here ---

Result<> read_post_processor(const dom::element& node, const Source& source, Shape& shape, int depth) {
  const std::string_view type = text_member(node, "type");
  if (type == "ByteLevel") return {};  // changes offsets only
  if (type == "Sequence" && depth == 0) {
    const auto steps = array_member(node, "processors");
    if (!steps) return source.error(Code::kCorruption, "post_processor Sequence without processors");
    for (const dom::element step : *steps) DI_TRY(read_post_processor(step, source, shape, depth + 1));
    return {};
  }
  if (type != "TemplateProcessing") return source.error(Code::kUnsupported, "post_processor " + in_quotes(type));
  const auto single = array_member(node, "single");
  if (!single) return source.error(Code::kCorruption, "post_processor TemplateProcessing without single");
  bool text_seen = false;
  for (const dom::element part : *single) {
    if (member(part, "Sequence")) {
      text_seen = true;
      continue;
    }
    const auto special = member(part, "SpecialToken");
    if (!special) return source.error(Code::kCorruption, "post_processor TemplateProcessing with a part that is neither text nor token");
    // A token behind the text is for training; a prompt is continued.
    if (text_seen) continue;
    if (shape.template_start) return source.error(Code::kUnsupported, "post_processor TemplateProcessing with two tokens before the text");
    shape.template_start = std::string(text_member(*special, "id"));
  }
  return {};
}

// --- decoder: must be the inverse that token_bytes() is ---

Result<> read_decoder(const dom::element& node, const Source& source, const Shape& shape) {
  const std::string_view type = text_member(node, "type");
  if (type == "ByteLevel" && shape.byte_level) return {};
  if (type == "Sequence" && !shape.byte_level) {
    const auto steps = array_member(node, "decoders");
    if (!steps) return source.error(Code::kCorruption, "decoder Sequence without decoders");
    for (const dom::element step : *steps) {
      const std::string_view t = text_member(step, "type");
      if (t == "ByteFallback" || t == "Fuse") continue;
      const auto pattern = member(step, "pattern");
      if (t == "Replace" && pattern && text_member(*pattern, "String") == "▁" && text_member(step, "content") == " ") continue;
      int64_t start = -1, stop = -1;
      const auto from = member(step, "start"), to = member(step, "stop");
      const bool counts = from && to && from->get(start) == simdjson::SUCCESS && to->get(stop) == simdjson::SUCCESS;
      if (t == "Strip" && text_member(step, "content") == " " && counts && start == (shape.prepend_space ? 1 : 0) && stop == 0) continue;
      return source.error(Code::kUnsupported, "decoder " + in_quotes(t));
    }
    return {};
  }
  return source.error(Code::kUnsupported, "decoder " + in_quotes(type));
}

// --- model and added tokens ---

// Ids may have gaps, but a file must not make us allocate more than it could fill itself.
Result<> place(Source& source, int64_t id, std::string_view spelling, TokenKind kind, size_t max_ids) {
  if (id < 0 || static_cast<uint64_t>(id) >= max_ids) {
    return source.error(Code::kCorruption, "token " + in_quotes(spelling) + " has the id " + std::to_string(id) + ", out of range");
  }
  const auto i = static_cast<size_t>(id);
  if (i >= source.spellings.size()) {
    source.spellings.resize(i + 1);
    source.kinds.resize(i + 1, TokenKind::kAbsent);
  }
  if (source.kinds[i] != TokenKind::kAbsent && source.spellings[i] != spelling) {
    return source.error(Code::kCorruption, "tokens " + in_quotes(source.spellings[i]) + " and " + in_quotes(spelling) + " have the same id " + std::to_string(id));
  }
  source.spellings[i] = spelling;
  source.kinds[i] = kind;
  return {};
}

bool is_byte_spelling(std::string_view s) { return s.size() == 6 && s.substr(0, 3) == "<0x" && s[5] == '>'; }

Result<> read_vocab(const dom::element& model, Source& source, const Shape& shape, size_t num_added) {
  dom::object vocab;
  const auto node = member(model, "vocab");
  if (!node || node->get(vocab) != simdjson::SUCCESS) return source.error(Code::kCorruption, "model.vocab is missing or no object");
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : vocab) ++count;
  const size_t max_ids = 4 * (count + num_added) + 65536;
  source.spellings.reserve(count + num_added);
  for (const auto [key, value] : vocab) {
    int64_t id = -1;
    if (value.get(id) != simdjson::SUCCESS) return source.error(Code::kCorruption, "model.vocab: the id of " + in_quotes(key) + " is no number");
    if (id >= 0 && static_cast<size_t>(id) < source.kinds.size() && source.kinds[static_cast<size_t>(id)] != TokenKind::kAbsent) {
      return source.error(Code::kCorruption, "model.vocab gives the id " + std::to_string(id) + " twice");
    }
    const bool is_byte = shape.byte_fallback && is_byte_spelling(key);
    DI_TRY(place(source, id, key, is_byte ? TokenKind::kByte : TokenKind::kNormal, max_ids));
  }
  return {};
}

Result<> read_merges(const dom::element& model, Source& source) {
  const auto merges = array_member(model, "merges");
  if (!merges) return source.error(Code::kCorruption, "model.merges is missing or no array");
  for (const dom::element merge : *merges) {
    std::string_view text, left, right;
    dom::array pair;
    if (merge.get(text) == simdjson::SUCCESS) {
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        return source.error(Code::kCorruption, "merge " + in_quotes(text) + " is not two tokens with a space between them");
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.get(pair) == simdjson::SUCCESS) {
      if (pair.size() != 2 || pair.at(0).get(left) != simdjson::SUCCESS || pair.at(1).get(right) != simdjson::SUCCESS) {
        return source.error(Code::kCorruption, "merge " + std::to_string(source.merges.size()) + " is not a pair of strings");
      }
    } else {
      return source.error(Code::kCorruption, "merge " + std::to_string(source.merges.size()) + " is neither a string nor a pair");
    }
    if (left.empty() || right.empty()) {
      return source.error(Code::kCorruption, "merge " + std::to_string(source.merges.size()) + " has an empty side");
    }
    source.merges.emplace_back(left, right);
  }
  return {};
}

Result<> read_added(const dom::array& added, Source& source, const Shape& shape) {
  const size_t max_ids = 4 * (source.spellings.size() + added.size()) + 65536;
  for (const dom::element token : added) {
    int64_t id = -1;
    const auto number = member(token, "id");
    const std::string_view content = text_member(token, "content");
    if (!number || number->get(id) != simdjson::SUCCESS || content.empty()) {
      return source.error(Code::kCorruption, "an added token without id or content");
    }
    if (bool_member(token, "single_word", false)) {
      return source.error(Code::kUnsupported, "added token " + in_quotes(content) + " with single_word");
    }
    AddedRule rule{.id = static_cast<TokenId>(id), .spelling = std::string(content)};
    rule.special = bool_member(token, "special", false);
    rule.lstrip = bool_member(token, "lstrip", false);
    rule.rstrip = bool_member(token, "rstrip", false);
    rule.normalized = bool_member(token, "normalized", !rule.special);
    if (rule.normalized && shape.replace_space) {
      return source.error(Code::kUnsupported, "added token " + in_quotes(content) + " that is normalised with spaces replaced");
    }
    if (id >= 0 && static_cast<size_t>(id) < source.kinds.size() && source.kinds[static_cast<size_t>(id)] == TokenKind::kAdded) {
      return source.error(Code::kCorruption, "two added tokens have the id " + std::to_string(id));
    }
    DI_TRY(place(source, id, content, TokenKind::kAdded, max_ids));
    source.added.push_back(std::move(rule));
  }
  return {};
}

Result<> check_model(const dom::element& model, const Source& source) {
  const std::string_view type = text_member(model, "type");
  if (!type.empty() && type != "BPE") return source.error(Code::kUnsupported, "model " + in_quotes(type));
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!text_member(model, affix).empty()) return source.error(Code::kUnsupported, std::string("model.") + affix);
  }
  double dropout = 0;
  const auto node = member(model, "dropout");
  if (node && (node->get(dropout) != simdjson::SUCCESS || dropout != 0)) return source.error(Code::kUnsupported, "model.dropout");
  return {};
}

// --- tokenizer_config.json ---

std::optional<int64_t> added_id(const Source& source, std::string_view spelling) {
  for (const AddedRule& rule : source.added) {
    if (rule.spelling == spelling) return rule.id;
  }
  return std::nullopt;
}

// The id of a token that tokenizer_config.json names.
Result<int64_t> named_id(std::string_view key, std::string_view spelling, const Source& source) {
  if (const auto id = added_id(source, spelling)) return *id;
  for (size_t i = 0; i < source.spellings.size(); ++i) {
    if (!spelling.empty() && source.spellings[i] == spelling) return static_cast<int64_t>(i);
  }
  return source.error(Code::kCorruption, "tokenizer_config.json: " + std::string(key) + " " + in_quotes(spelling) + " is not in the vocabulary");
}

struct Config {
  std::optional<std::string> bos_token, eos_token;
  std::optional<bool> add_bos_token;
};

// A token is given as text, as an object with its content, or as null.
Result<> read_token_name(ondemand::value value, std::string_view key, const Source& source, std::optional<std::string>& out) {
  const auto wrong = [&] { return source.error(Code::kCorruption, "tokenizer_config.json: " + std::string(key) + " is no token"); };
  ondemand::json_type type;
  std::string_view spelling;
  if (value.type().get(type)) return wrong();
  if (type == ondemand::json_type::null) return {};
  if (type == ondemand::json_type::object ? value["content"].get(spelling) : value.get(spelling)) return wrong();
  out = std::string(spelling);
  return {};
}

// Read lazily: these files hold integers of 30 digits (model_max_length), which a parser that converts every number refuses.
Result<Config> parse_config(std::string_view json, const Source& source) {
  Config config;
  const auto not_json = [&](simdjson::error_code error) {
    return source.error(Code::kCorruption, std::string("tokenizer_config.json is no JSON object: ") + simdjson::error_message(error));
  };
  const simdjson::padded_string padded(json);
  ondemand::parser parser;
  ondemand::document document;
  ondemand::object object;
  if (const auto error = parser.iterate(padded).get(document)) return not_json(error);
  if (const auto error = document.get_object().get(object)) return not_json(error);
  for (auto entry : object) {
    ondemand::field field;
    std::string_view key;
    if (const auto error = std::move(entry).get(field)) return not_json(error);
    if (const auto error = field.unescaped_key().get(key)) return not_json(error);
    if (key == "bos_token") {
      DI_TRY(read_token_name(field.value(), key, source, config.bos_token));
    } else if (key == "eos_token") {
      DI_TRY(read_token_name(field.value(), key, source, config.eos_token));
    } else if (key == "add_bos_token") {
      bool flag = false;
      if (field.value().get(flag) == simdjson::SUCCESS) config.add_bos_token = flag;
    }
  }
  return config;
}

Result<> apply_config(std::string_view json, Source& source, const Shape& shape) {
  Config config;
  if (!json.empty()) {
    DI_TRY(config, parse_config(json, source));
  }
  if (config.bos_token) {
    DI_TRY(source.bos_id, named_id("bos_token", *config.bos_token, source));
  }
  if (config.eos_token) {
    DI_TRY(source.eos_id, named_id("eos_token", *config.eos_token, source));
  }
  if (shape.template_start) {
    source.bos_id = added_id(source, *shape.template_start);
    if (!source.bos_id) {
      return source.error(Code::kCorruption, "post_processor names " + in_quotes(*shape.template_start) + ", which is no added token");
    }
  }
  source.add_bos = config.add_bos_token.value_or(shape.template_start.has_value());
  return {};
}

Result<std::unique_ptr<Tokenizer>> build(const dom::element& root, std::string_view config_json, Source source) {
  Shape shape;
  const auto model = member(root, "model");
  if (!model || !model->is_object()) return source.error(Code::kCorruption, "member model is missing or no object");
  DI_TRY(check_model(*model, source));
  shape.byte_fallback = bool_member(*model, "byte_fallback", false);
  source.has_unknown = !text_member(*model, "unk_token").empty();
  source.ignore_merges = bool_member(*model, "ignore_merges", false);
  if (const auto node = member(root, "normalizer")) DI_TRY(read_normalizer(*node, source, shape, 0));
  if (const auto node = member(root, "pre_tokenizer")) DI_TRY(read_pre_tokenizer(*node, source, shape, 0));
  if (const auto node = member(root, "post_processor")) DI_TRY(read_post_processor(*node, source, shape, 0));
  if (const auto node = member(root, "decoder")) DI_TRY(read_decoder(*node, source, shape));

  const auto added = array_member(root, "added_tokens");
  DI_TRY(read_vocab(*model, source, shape, added ? added->size() : 0));
  DI_TRY(read_merges(*model, source));
  if (added) DI_TRY(read_added(*added, source, shape));
  DI_TRY(apply_config(config_json, source, shape));

  if (shape.byte_level) {
    if (shape.replace_space || shape.byte_fallback) return source.error(Code::kUnsupported, "ByteLevel together with the parts of SentencePiece");
    DI_TRY(source.splitter, splitter_of(source, shape));
    return make_byte_level(std::move(source));
  }
  if (!shape.byte_fallback || !shape.replace_space || !shape.splits.empty() || source.nfc || source.ignore_merges) {
    return source.error(Code::kUnsupported, "a BPE model that is neither byte-level nor SentencePiece with byte fallback");
  }
  source.add_space_prefix = shape.prepend_space;
  return make_sentence_piece(std::move(source));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_json(std::string_view json, std::string_view config_json, std::string_view name) {
  Source source;
  source.name = name;
  dom::parser parser;
  dom::element root;
  if (const auto error = parser.parse(simdjson::padded_string(json)).get(root)) {
    return source.error(Code::kCorruption, std::string("not JSON: ") + simdjson::error_message(error));
  }
  if (!root.is_object()) return source.error(Code::kCorruption, "not a JSON object");
  return build(root, config_json, std::move(source));
}

}  // namespace deepinfer::tokenizer
