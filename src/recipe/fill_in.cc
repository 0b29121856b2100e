#include "recipe/fill_in.h"

#include <array>

namespace deepinfer::recipe {
namespace {

// Three marks around two texts: mark 0, before, mark 1, after, mark 2.
struct Layout {
  std::array<std::string_view, 3> marks;
  std::string_view begin;  // in front of them; empty: nothing
};
constexpr Layout kLayouts[] = {
    {{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}, "<｜begin▁of▁sentence｜>"},
    {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, ""},
};

Segment special(TokenId id, std::string_view spelling) { return {.kind = Segment::Kind::kSpecial, .id = id, .text = std::string(spelling)}; }

std::optional<Prompt> fill_in(const Layout& layout, std::string_view before, std::string_view after, const tokenizer::Tokenizer& tokenizer) {
  std::array<TokenId, 3> ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::optional<TokenId> id = tokenizer.special_id(layout.marks[i]);
    if (!id) return std::nullopt;
    ids[i] = *id;
  }
  Prompt out;
  if (const std::optional<TokenId> begin = tokenizer.special_id(layout.begin)) out.segments.push_back(special(*begin, layout.begin));
  out.segments.push_back(special(ids[0], layout.marks[0]));
  out.segments.push_back({.text = std::string(before)});
  out.segments.push_back(special(ids[1], layout.marks[1]));
  out.segments.push_back({.text = std::string(after)});
  out.segments.push_back(special(ids[2], layout.marks[2]));
  return out;
}

}  // namespace

std::optional<Prompt> fill_in_prompt(std::string_view before, std::string_view after, const tokenizer::Tokenizer& tokenizer) {
  for (const Layout& layout : kLayouts) {
    if (std::optional<Prompt> prompt = fill_in(layout, before, after, tokenizer)) return prompt;
  }
  return std::nullopt;
}

}  // namespace deepinfer::recipe
