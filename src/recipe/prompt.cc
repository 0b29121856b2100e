#include "recipe/prompt.h"

namespace deepinfer::recipe {

std::vector<TokenId> prompt_tokens(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  std::string plain;  // neighbours joined: merges may reach across the seam of two plain segments
  const auto flush = [&] {
    if (!plain.empty()) tokenizer.encode(plain, tokenizer::Recognize::kNothing, ids);
    plain.clear();
  };
  for (const Segment& segment : prompt.segments) {
    if (segment.kind == Segment::Kind::kPlain) {
      plain += segment.text;
      continue;
    }
    flush();
    ids.push_back(segment.id);
  }
  flush();
  return ids;
}

std::string prompt_text(const Prompt& prompt) {
  std::string text;
  for (const Segment& segment : prompt.segments) text += segment.text;
  return text;
}

std::string prompt_text_marked(const Prompt& prompt) {
  std::string text;
  for (const Segment& segment : prompt.segments) {
    if (segment.kind == Segment::Kind::kPlain) {
      text += segment.text;
    } else {
      text += "⟦" + std::to_string(segment.id) + " " + segment.text + "⟧";
    }
  }
  return text;
}

}  // namespace deepinfer::recipe
