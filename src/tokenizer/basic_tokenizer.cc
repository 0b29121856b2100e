#include "tokenizer/basic_tokenizer.h"

#include <algorithm>
#include <utility>

#include "tokenizer/unicode.h"

namespace deepinfer::tokenizer {
namespace {

// Spellings that end an answer where they are control tokens. Files name one EOS; chat models end their turns with another.
constexpr std::string_view kStopSpellings[] = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>",
    "<｜end▁of▁sentence｜>", "</s>",
};

Result<std::optional<TokenId>> checked_id(const Source& source, const std::optional<int64_t>& id, std::string_view what) {
  if (!id) return std::optional<TokenId>();
  if (*id < 0 || *id >= static_cast<int64_t>(source.spellings.size())) {
    return source.error(Code::kCorruption, std::string(what) + " token id " + std::to_string(*id) + " is outside the vocabulary of " +
                                               std::to_string(source.spellings.size()) + " tokens");
  }
  return std::optional<TokenId>(static_cast<TokenId>(*id));
}

}  // namespace

Result<Vocabulary> Vocabulary::build(const Source& source, const std::vector<std::string>& bytes) {
  Vocabulary v;
  const size_t n = source.spellings.size();
  v.special_.resize(n);
  std::vector<const AddedRule*> added(n);
  for (const AddedRule& rule : source.added) {
    const auto i = static_cast<size_t>(rule.id);
    added[i] = &rule;
    v.special_[i] = rule.special;
  }
  v.offsets_.reserve(n + 1);
  for (size_t i = 0; i < n; ++i) {
    v.offsets_.push_back(v.text_.size());
    v.text_ += added[i] ? added[i]->spelling : bytes[i];
    if (added[i]) v.added.push_back({static_cast<TokenId>(i), added[i]->spelling, added[i]->special});
  }
  v.offsets_.push_back(v.text_.size());

  for (uint32_t i = 0; i < v.added.size(); ++i) v.by_spelling_.push_back(i);
  std::sort(v.by_spelling_.begin(), v.by_spelling_.end(),
            [&](uint32_t a, uint32_t b) { return v.added[a].spelling < v.added[b].spelling; });

  for (size_t i = 1; i < v.by_spelling_.size(); ++i) {
    const std::string& spelling = v.added[v.by_spelling_[i]].spelling;
    if (spelling == v.added[v.by_spelling_[i - 1]].spelling) {
      return source.error(Code::kCorruption, "two added tokens are spelt \"" + spelling + "\"");
    }
  }

  DI_TRY(v.bos_id, checked_id(source, source.bos_id, "the BOS"));
  DI_TRY(v.eos_id, checked_id(source, source.eos_id, "the EOS"));
  DI_TRY(const auto eot_id, checked_id(source, source.eot_id, "the EOT"));
  DI_TRY(checked_id(source, source.unknown_id, "the unknown"));
  v.add_bos = source.add_bos && v.bos_id;
  if (v.eos_id) v.stop_ids.push_back(*v.eos_id);
  if (eot_id) v.stop_ids.push_back(*eot_id);
  for (const Tokenizer::AddedToken& token : v.added) {
    const auto* const end = std::end(kStopSpellings);
    if (token.special && std::find(std::begin(kStopSpellings), end, token.spelling) != end) v.stop_ids.push_back(token.id);
  }
  std::sort(v.stop_ids.begin(), v.stop_ids.end());
  v.stop_ids.erase(std::unique(v.stop_ids.begin(), v.stop_ids.end()), v.stop_ids.end());
  return v;
}

std::optional<TokenId> Vocabulary::added_id(std::string_view spelling) const {
  const auto at = std::lower_bound(by_spelling_.begin(), by_spelling_.end(), spelling,
                                   [&](uint32_t i, std::string_view s) { return added[i].spelling < s; });
  if (at == by_spelling_.end() || added[*at].spelling != spelling) return std::nullopt;
  return added[*at].id;
}

Result<BasicTokenizer::Added> BasicTokenizer::split_added(const Source& source) {
  std::vector<AddedRule> raw, normalized;
  for (const AddedRule& rule : source.added) {
    if (!(rule.normalized && source.nfc)) {
      raw.push_back(rule);
      continue;
    }
    std::string storage;
    normalized.push_back(rule);
    normalized.back().spelling = to_nfc(rule.spelling, storage);
  }
  Added added;
  DI_TRY(added.raw, AddedTokens::build(std::move(raw)));
  DI_TRY(added.normalized, AddedTokens::build(std::move(normalized)));
  return added;
}

std::optional<TokenId> BasicTokenizer::special_id(std::string_view spelling) const { return vocabulary_.added_id(spelling); }

std::unique_ptr<BasicTokenizer::Scratch> BasicTokenizer::take_scratch() const {
  {
    const MutexLock lock(mu_);
    if (!idle_.empty()) {
      auto scratch = std::move(idle_.back());
      idle_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<Scratch>();
}

void BasicTokenizer::give_back(std::unique_ptr<Scratch> scratch) const {
  constexpr size_t kMaxIdle = 16;           // as many as threads are likely to encode at once
  constexpr size_t kMaxKeptBytes = 1 << 20;  // a long run grows buffers that the next text will not need
  if (scratch->merge.ranks.capacity() * sizeof(uint32_t) > kMaxKeptBytes) scratch->merge = MergeScratch{};
  if (scratch->symbols.capacity() * sizeof(TokenId) > kMaxKeptBytes) scratch->symbols = {};
  if (scratch->normalized.capacity() > kMaxKeptBytes) scratch->normalized = {};
  if (scratch->prefixed.capacity() > kMaxKeptBytes) scratch->prefixed = {};
  const MutexLock lock(mu_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(scratch));
}

// Cuts the text at added tokens; `rest` encodes what lies between them.
template <class Rest>
void BasicTokenizer::part(const AddedTokens& added, std::string_view text, Recognize recognize, std::vector<TokenId>& out,
                          const Rest& rest) const {
  size_t done = 0, from = 0;
  while (!added.empty() && recognize != Recognize::kNothing) {
    AddedTokens::Match match = added.find(text, from);
    if (!match.rule) break;
    from = match.end;
    // A special token that is not wanted hides what is inside it, too: the reference implementation looks for all and drops some.
    if (match.rule->special && recognize != Recognize::kAll) continue;
    if (match.rule->lstrip) {
      size_t begin = match.begin;  // back over white space, code point by code point
      while (begin > done) {
        size_t start = begin - 1;
        while (start > done && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
        const CodePoint c = decode_at(text, start);
        if (c.value == kInvalidByte || start + c.size != begin || !(class_of(c.value) & kSpace)) break;
        begin = start;
      }
      match.begin = begin;
    }
    if (match.rule->rstrip) {
      while (match.end < text.size()) {
        const CodePoint c = decode_at(text, match.end);
        if (c.value == kInvalidByte || !(class_of(c.value) & kSpace)) break;
        match.end += c.size;
      }
      from = match.end;
    }
    if (match.begin > done) rest(text.substr(done, match.begin - done));
    out.push_back(match.rule->id);
    done = match.end;
  }
  if (done < text.size()) rest(text.substr(done));
}

void BasicTokenizer::encode(std::string_view text, Recognize recognize, std::vector<TokenId>& out) const {
  if (text.empty()) return;
  std::unique_ptr<Scratch> scratch = take_scratch();
  part(added_.raw, text, recognize, out, [&](std::string_view raw) {
    const std::string_view normalized = normalize(raw, scratch->normalized);
    part(added_.normalized, normalized, recognize, out, [&](std::string_view rest) { encode_text(rest, *scratch, out); });
  });
  give_back(std::move(scratch));
}

}  // namespace deepinfer::tokenizer
