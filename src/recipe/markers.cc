#include "recipe/markers.h"

#include <algorithm>

namespace deepinfer::recipe {
namespace {

constexpr std::array<std::string_view, 4> kSpellings = {"", "<think>", "</think>", "｜DSML｜"};

// Where a model points into an image: control tokens of the vocabulary, but content of the answer.
constexpr std::array<std::string_view, 8> kGrounding = {"<｜ref｜>",   "<｜/ref｜>",   "<｜box｜>",     "<｜/box｜>",
                                                        "<｜point｜>", "<｜/point｜>", "<｜polygon｜>", "<｜/polygon｜>"};

bool is_added(const tokenizer::Tokenizer& tokenizer, TokenId token) {
  const auto added = tokenizer.added_tokens();
  const auto at = std::lower_bound(added.begin(), added.end(), token, [](const auto& entry, TokenId id) { return entry.id < id; });
  return at != added.end() && at->id == token;
}

}  // namespace

std::string_view spelling_of(Marker marker) { return kSpellings[static_cast<size_t>(marker)]; }

MarkerReader::MarkerReader(const tokenizer::Tokenizer& tokenizer, MarkerRules rules)
    : tokenizer_(&tokenizer), detokenizer_(tokenizer), rules_(rules) {
  if (!rules.markers) return;
  for (size_t i = 1; i < ids_.size(); ++i) ids_[i] = tokenizer.special_id(kSpellings[i]);
  thoughts_by_text_ = !rules.by_text && !(ids_[1] && ids_[2]);
  if (!rules.by_text && !thoughts_by_text_) return;
  std::vector<std::string> spelt(kSpellings.begin() + 1, rules.by_text ? kSpellings.end() : kSpellings.begin() + 3);
  spellings_.emplace(spelt);
}

void MarkerReader::push(TokenId token, std::vector<Symbol>& out) {
  for (size_t i = 1; i < ids_.size(); ++i) {
    if (ids_[i] != token) continue;
    finish(out);
    out.push_back({.marker = static_cast<Marker>(i)});
    return;
  }
  if (rules_.hides_added_tokens && is_added(*tokenizer_, token)) {
    const std::string_view spelling = tokenizer_->token_bytes(token);
    if (std::find(kGrounding.begin(), kGrounding.end(), spelling) == kGrounding.end()) return;
  }
  detokenizer_.push(token, text_);
  add_text(out);
}

void MarkerReader::finish(std::vector<Symbol>& out) {
  detokenizer_.finish(text_);
  add_text(out);
  flush_spelling(out);
}

void MarkerReader::stop_reading_text(std::vector<Symbol>& out) {
  flush_spelling(out);
  spellings_.reset();
  thoughts_by_text_ = false;
}

void MarkerReader::flush_spelling(std::vector<Symbol>& out) {
  for (const char c : waiting_) out.push_back({.byte = c});
  waiting_.clear();
  if (spellings_) spellings_->reset();
}

void MarkerReader::add_text(std::vector<Symbol>& out) {
  for (const char c : text_) {
    if (!spellings_) {
      out.push_back({.byte = c});
      continue;
    }
    waiting_ += c;
    if (const int32_t found = spellings_->push(c); found >= 0) {
      const auto marker = static_cast<Marker>(found + 1);
      waiting_.resize(waiting_.size() - spelling_of(marker).size());
      flush_spelling(out);
      out.push_back({.marker = marker});
    } else {
      const size_t ready = waiting_.size() - spellings_->num_held();
      for (size_t i = 0; i < ready; ++i) out.push_back({.byte = waiting_[i]});
      waiting_.erase(0, ready);
    }
  }
  text_.clear();
}

}  // namespace deepinfer::recipe
