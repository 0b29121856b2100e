// LIBS: di_recipe
//
// Hostile requests to prompts, in all protocols and dialects. Input: a byte that picks both, then the body. Nothing may crash; what is
// accepted is rendered, or refused in words; control tokens in the ids are those of the prompt's structure, and the ids spell its text.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "recipe/dialect.h"
#include "recipe/encode_request.h"
#include "recipe/fake_tokenizer.h"
#include "recipe/json_reader.h"

using namespace deepinfer;
using namespace deepinfer::recipe;

namespace {

FakeTokenizer make_tokenizer() {
  const char* const spellings[] = {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>",  "<｜Assistant｜>", "<｜System｜>",
                                   "<｜latest_reminder｜>",   "<think>",               "</think>",   "｜DSML｜",        "<｜deepseek_image｜>",
                                   "<｜fim▁begin｜>",         "<｜fim▁hole｜>",        "<｜fim▁end｜>"};
  std::vector<tokenizer::Tokenizer::AddedToken> added;
  for (const char* spelling : spellings) added.push_back({static_cast<TokenId>(added.size()), spelling, false});
  return FakeTokenizer(std::move(added), 0, 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const FakeTokenizer tokenizer = make_tokenizer();
  if (size == 0) return 0;
  const Protocol protocol = static_cast<Protocol>(data[0] % 4);
  constexpr Dialect kDialects[] = {Dialect::kV4Preview, Dialect::kV4, Dialect::kV41};
  const Dialect dialect = kDialects[data[0] / 4 % 3];
  const auto body = read_json_object(std::string(reinterpret_cast<const char*>(data + 1), size - 1));
  if (!body) return 0;
  RequestContext context;
  context.options.vocab_size = tokenizer.vocab_size();
  context.options.dialect = dialect;
  context.options.accepts_images = true;
  Problems problems;
  const auto request = parse_request(protocol, *body, context, problems);
  CHECK(request.has_value() != problems.any());
  if (!request) {
    CHECK(!problems.first().message.empty());
    return 0;
  }
  const auto* text = std::get_if<TextPrompt>(&request->prompt);
  if (text != nullptr && (text->parse_special || !std::holds_alternative<std::string>(text->text))) return 0;  // control tokens that were asked for
  const auto renderer = make_dialect_renderer(dialect, tokenizer);
  CHECK(renderer.has_value());
  const auto encoded = encode_request(*request, {.tokenizer = tokenizer, .renderer = renderer->get(), .text_bos = true});
  if (!encoded) {
    CHECK(encoded.error().code == Code::kInvalidArgument);
    return 0;
  }
  size_t num_control = 0, num_added = 0;
  for (const Segment& segment : encoded->prompt.segments) num_control += segment.kind == Segment::Kind::kPlain ? 0 : 1;
  std::string spelt;
  for (const TokenId id : encoded->ids) {
    num_added += id < FakeTokenizer::kFirstByte ? 1 : 0;
    spelt += tokenizer.token_bytes(id);
  }
  CHECK(num_added == num_control);
  CHECK(spelt == prompt_text(encoded->prompt));
  return 0;
}
