// Tokenizers from the vocabulary of a GGUF file. The file names its pre-tokenizer by a word; what a word means is fixed by the
// programs that write such files. A word that is not known here is refused: a wrong guess gives wrong ids without a sign.
#include <algorithm>
#include <string>

#include "tokenizer/source.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::tokenizer {
namespace {

struct PreTokenizer {
  std::string_view name;
  Splitter splitter;
  bool nfc = false;            // the GGUF does not say; the tokenizers that these names stand for do
  bool ignore_merges = false;
  bool add_bos = false;        // where the file is silent
};
constexpr PreTokenizer kPreTokenizers[] = {
    {"", Splitter::kGpt2},  // written before pre-tokenizers had names
    {"default", Splitter::kGpt2},
    {"gpt-2", Splitter::kGpt2},
    {"phi-2", Splitter::kGpt2},
    {"smollm", Splitter::kDigitsGpt2},
    {"starcoder", Splitter::kDigitsGpt2},
    {"refact", Splitter::kDigitsGpt2},
    {"codeshell", Splitter::kDigitsGpt2},
    {"llama-bpe", Splitter::kLlama3, false, true, true},
    {"llama3", Splitter::kLlama3, false, true, true},
    {"llama-v3", Splitter::kLlama3, false, true, true},
    {"falcon3", Splitter::kLlama3, false, true, true},
    {"dbrx", Splitter::kLlama3},
    {"smaug-bpe", Splitter::kLlama3},
    {"qwen2", Splitter::kQwen2, true},
    {"deepseek-r1-qwen", Splitter::kQwen2, true},
    {"deepseek-v3", Splitter::kDeepSeek3},
    {"joyai-llm", Splitter::kDeepSeek3},
};

enum TokenType : int32_t { kNormalType = 1, kUnknownType, kControlType, kUserDefinedType, kUnusedType, kByteType };

Result<> add_tokens(const GgufVocabulary& v, Source& source) {
  const size_t n = v.tokens.size();
  if (n == 0) return source.error(Code::kCorruption, "tokenizer.ggml.tokens is empty");
  if (!v.token_types.empty() && v.token_types.size() != n) {
    return source.error(Code::kCorruption, std::to_string(v.token_types.size()) + " token types for " + std::to_string(n) + " tokens");
  }
  source.spellings.assign(v.tokens.begin(), v.tokens.end());
  source.kinds.assign(n, TokenKind::kNormal);
  for (size_t i = 0; i < v.token_types.size(); ++i) {
    const int32_t type = v.token_types[i];
    switch (type) {
      case kNormalType: break;
      case kUnusedType: source.kinds[i] = TokenKind::kAbsent; break;
      case kByteType: source.kinds[i] = TokenKind::kByte; break;
      case kUnknownType:
      case kControlType:
      case kUserDefinedType:
        source.kinds[i] = v.tokens[i].empty() ? TokenKind::kAbsent : TokenKind::kAdded;
        if (v.tokens[i].empty()) break;
        source.added.push_back({.id = static_cast<TokenId>(i), .spelling = std::string(v.tokens[i]), .special = type != kUserDefinedType});
        break;
      default: return source.error(Code::kCorruption, "token " + std::to_string(i) + " has type " + std::to_string(type));
    }
  }
  return {};
}

Result<> add_merges(const GgufVocabulary& v, Source& source) {
  source.merges.reserve(v.merges.size());
  for (const std::string_view merge : v.merges) {
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() || merge.find(' ', space + 1) != std::string_view::npos) {
      return source.error(Code::kCorruption, "merge \"" + std::string(merge) + "\" is not two tokens with a space between them");
    }
    source.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(const GgufVocabulary& v, std::string_view name) {
  Source source;
  source.name = name;
  DI_TRY(add_tokens(v, source));
  source.bos_id = v.bos_id;
  source.eos_id = v.eos_id;
  source.eot_id = v.eot_id;
  source.unknown_id = v.unknown_id;
  if (v.model == "llama") {
    source.scores.assign(v.scores.begin(), v.scores.end());
    if (source.scores.empty()) return source.error(Code::kCorruption, "a SentencePiece vocabulary without tokenizer.ggml.scores");
    source.add_bos = v.add_bos.value_or(true);
    source.add_space_prefix = v.add_space_prefix.value_or(true);
    return make_sentence_piece(std::move(source));
  }
  if (v.model != "gpt2") return source.error(Code::kUnsupported, "tokenizer model \"" + std::string(v.model) + "\"");
  const auto* const pre = std::find_if(std::begin(kPreTokenizers), std::end(kPreTokenizers), [&](const PreTokenizer& p) { return p.name == v.pre; });
  if (pre == std::end(kPreTokenizers)) return source.error(Code::kUnsupported, "pre-tokenizer \"" + std::string(v.pre) + "\"");
  if (v.add_space_prefix.value_or(false)) return source.error(Code::kUnsupported, "add_space_prefix in a byte-level vocabulary");
  if (v.merges.empty()) return source.error(Code::kCorruption, "a byte-level vocabulary without tokenizer.ggml.merges");
  source.splitter = pre->splitter;
  source.nfc = pre->nfc;
  source.ignore_merges = pre->ignore_merges;
  source.add_bos = v.add_bos.value_or(pre->add_bos);
  DI_TRY(add_merges(v, source));
  return make_byte_level(std::move(source));
}

}  // namespace deepinfer::tokenizer
