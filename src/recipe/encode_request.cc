#include "recipe/encode_request.h"

#include <algorithm>
#include <utility>

#include "recipe/fill_in.h"

namespace deepinfer::recipe {
namespace {

// Ids as people read them: control tokens, and the bytes between them.
std::vector<Segment> segments_of(const std::vector<TokenId>& ids, const tokenizer::Tokenizer& tokenizer) {
  std::vector<Segment> out;
  for (const TokenId id : ids) {
    const std::string text(tokenizer.token_bytes(id));
    if (tokenizer.special_id(text) == id) {
      out.push_back({.kind = Segment::Kind::kSpecial, .id = id, .text = text});
      continue;
    }
    if (out.empty() || out.back().kind != Segment::Kind::kPlain) out.push_back({});
    out.back().text += text;
  }
  return out;
}

EncodedRequest from_ids(std::vector<TokenId> ids, const tokenizer::Tokenizer& tokenizer) {
  EncodedRequest out{.ids = std::move(ids), .images = {}, .prompt = {}};
  out.prompt.segments = segments_of(out.ids, tokenizer);
  return out;
}

EncodedRequest from_prompt(Prompt prompt, const EncodeContext& context) {
  EncodedRequest out{.ids = {}, .images = {}, .prompt = std::move(prompt)};
  out.ids = context.cache != nullptr ? context.cache->tokens(out.prompt, context.scope) : prompt_tokens(out.prompt, context.tokenizer);
  return out;
}

// Each placeholder becomes as many as its picture has positions. Placeholders are the template's alone: text that spells one has other ids.
Result<> place_images(const EncodeContext& context, EncodedRequest& out) {
  const std::vector<Segment>& segments = out.prompt.segments;
  const auto first = std::find_if(segments.begin(), segments.end(), [](const Segment& segment) { return segment.kind == Segment::Kind::kImage; });
  if (first == segments.end()) return {};
  std::vector<TokenId> widened;
  for (const TokenId id : out.ids) {
    if (id != first->id) {
      widened.push_back(id);
      continue;
    }
    if (out.images.size() == out.prompt.images.size()) return Error{Code::kInternal, "the prompt has more places for images than images"};
    DI_TRY(std::shared_ptr<const InputImage> image, context.read_image(out.prompt.images[out.images.size()]));
    const auto num_tokens = static_cast<size_t>(image->num_tokens);
    out.images.push_back({.start = static_cast<int32_t>(widened.size()), .image = std::move(image)});
    widened.insert(widened.end(), num_tokens, id);
  }
  if (out.images.size() != out.prompt.images.size()) return Error{Code::kInternal, "the prompt has fewer places for images than images"};
  out.ids = std::move(widened);
  return {};
}

Result<EncodedRequest> encode_text(const TextPrompt& request, const EncodeContext& context) {
  const tokenizer::Tokenizer& tokenizer = context.tokenizer;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.text)) return from_ids(*ids, tokenizer);
  const std::string& text = std::get<std::string>(request.text);
  if (request.suffix) {
    std::optional<Prompt> filled = fill_in_prompt(text, *request.suffix, tokenizer);
    if (!filled) return Error{Code::kInvalidArgument, "suffix is not supported: this model knows no fill in the middle"};
    filled->syntax.hides_added_tokens = context.hides_added_tokens;
    return from_prompt(std::move(*filled), context);
  }
  const std::optional<TokenId> bos = context.text_bos ? tokenizer.bos_id() : std::nullopt;
  if (request.parse_special) {
    std::vector<TokenId> ids;
    if (bos) ids.push_back(*bos);
    tokenizer.encode(text, tokenizer::Recognize::kAll, ids);
    return from_ids(std::move(ids), tokenizer);
  }
  Prompt prompt;
  prompt.syntax.hides_added_tokens = context.hides_added_tokens;
  if (bos) prompt.segments.push_back({.kind = Segment::Kind::kSpecial, .id = *bos, .text = std::string(tokenizer.token_bytes(*bos))});
  prompt.segments.push_back({.text = text});
  return from_prompt(std::move(prompt), context);
}

}  // namespace

Result<EncodedRequest> encode_request(const ParsedRequest& request, const EncodeContext& context) {
  if (const auto* text = std::get_if<TextPrompt>(&request.prompt)) return encode_text(*text, context);
  if (context.renderer == nullptr) return Error{Code::kInvalidArgument, "this model has no chat template; only text completions are possible"};
  DI_TRY(Prompt prompt, context.renderer->render(std::get<Conversation>(request.prompt)));
  EncodedRequest out = from_prompt(std::move(prompt), context);
  if (context.read_image) {
    DI_TRY(place_images(context, out));
  }
  return out;
}

}  // namespace deepinfer::recipe
