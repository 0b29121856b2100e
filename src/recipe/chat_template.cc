#include "recipe/chat_template.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <deepinfer_rust_buffer.h>

#include "base/bytes.h"
#include "recipe/template_probes.h"

namespace deepinfer::recipe {
namespace json = boost::json;
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n\v\f";
constexpr std::string_view kThink = "<think>";

const uint8_t* bytes(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

Error to_error(int32_t status, std::string_view message) {
  std::string text = "chat template: " + std::string(message);
  switch (status) {
    case DI_TEMPLATE_INTERNAL: return {Code::kInternal, std::move(text)};
    case DI_TEMPLATE_LIMIT: return {Code::kResourceExhausted, std::move(text)};
    case DI_TEMPLATE_AMBIGUOUS: return {Code::kInvalidArgument, std::string(message)};
    default: return {Code::kInvalidArgument, std::move(text)};
  }
}

int64_t system_now_unix_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string spelling_of(const std::optional<TokenId>& id, const tokenizer::Tokenizer& tokenizer) {
  return id ? std::string(tokenizer.token_bytes(*id)) : std::string();
}

}  // namespace

struct ChatTemplate::Handle {
  DiTemplate* raw = nullptr;
  ~Handle() { di_template_free(raw); }
};

ChatTemplate::ChatTemplate() = default;
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::create(std::string source, const tokenizer::Tokenizer& tokenizer,
                                                           ChatTemplateOptions options) {
  std::unique_ptr<ChatTemplate> made(new ChatTemplate);
  made->source_ = std::move(source);
  made->options_ = std::move(options);
  if (made->options_.bos.empty()) made->options_.bos = spelling_of(tokenizer.bos_id(), tokenizer);
  if (made->options_.eos.empty()) made->options_.eos = spelling_of(tokenizer.eos_id(), tokenizer);
  if (!made->options_.now_unix_s) made->options_.now_unix_s = system_now_unix_s;
  for (const auto& token : tokenizer.added_tokens()) {
    // Runs of white space are text that a template trims and splits, not control tokens.
    if (token.spelling.find_first_not_of(kWhiteSpace) != std::string::npos) made->tokens_.push_back({token.id, token.spelling});
  }

  DI_TRY(Compiled compiled, made->compile(/*characters=*/false, tokenizer));
  if (!compiled.missing.empty()) {
    Result<Compiled> followed = made->compile(/*characters=*/true, tokenizer);
    if (!followed || !followed->missing.empty()) {
      return Error{Code::kUnsupported, "chat template: it makes the control token " + compiled.missing +
                                           " in a way that cannot be told from text of a conversation that spells it"};
    }
    compiled = std::move(followed).value();
    made->composes_ = true;
  }
  made->traits_ = compiled.traits;
  made->handle_ = std::move(compiled.handle);
  made->note_ = std::move(compiled.note);
  return made;
}

Result<ChatTemplate::Compiled> ChatTemplate::compile(bool characters, const tokenizer::Tokenizer& tokenizer) const {
  json::array spellings;
  for (const Spelled& token : tokens_) spellings.emplace_back(token.spelling);
  const std::string options = json::serialize(json::object{
      {"spellings", std::move(spellings)},
      {"mode", characters ? "characters" : "tokens"},
      {"variables", {{"bos_token", options_.bos}, {"eos_token", options_.eos}}},
  });
  Compiled compiled{std::make_unique<Handle>(), {}, {}, {}};
  RustBuffer error;
  const int32_t status =
      di_template_new(bytes(source_), source_.size(), bytes(options), options.size(), &compiled.handle->raw, &error.raw);
  if (status != DI_TEMPLATE_OK) return to_error(status, error.text());
  DI_TRY(compiled.traits, find_traits(*compiled.handle));
  DI_TRY(try_out(compiled, tokenizer));
  return compiled;
}

// The first way of passing a tool call in which the template shows it.
Result<TemplateTraits> ChatTemplate::find_traits(const Handle& handle) const {
  const ToolCallProbe probe = tool_call_probe();
  for (const TemplateTraits traits : {TemplateTraits{false, false}, {true, false}, {true, true}, {false, true}}) {
    const Result<Prompt> prompt = render_with(handle, traits, probe.conversation);
    if (!prompt && prompt.error().code == Code::kResourceExhausted) return prompt.error();  // one such try is enough
    if (!prompt) continue;
    const std::string text = prompt_text(*prompt);
    if (text.find(probe.name) != std::string::npos && text.find(probe.argument) != std::string::npos) return TemplateTraits(traits);
  }
  return TemplateTraits{};
}

// Renders the probes, whose text spells no control token, and compares the ids with those of the whole text.
Result<> ChatTemplate::try_out(Compiled& compiled, const tokenizer::Tokenizer& tokenizer) const {
  std::optional<Error> first_error;
  bool any = false;
  for (const Conversation& probe : template_probes()) {
    Result<Prompt> prompt = render_with(*compiled.handle, compiled.traits, probe);
    if (!prompt && prompt.error().code == Code::kResourceExhausted) return std::move(prompt).error();
    if (!prompt) {  // templates refuse what their models do not know: system messages, tools
      if (!first_error) first_error = std::move(prompt).error();
      continue;
    }
    any = true;
    std::vector<TokenId> expected;
    tokenizer.encode(prompt_text(*prompt), tokenizer::Recognize::kAll, expected);
    const std::vector<TokenId> ids = prompt_tokens(*prompt, tokenizer);
    if (ids == expected) continue;

    for (const Spelled& token : tokens_) {
      // By count: where the plain text is cut differently, positions say nothing.
      const auto wanted = std::count(expected.begin(), expected.end(), token.id);
      const auto found = std::count_if(prompt->segments.begin(), prompt->segments.end(), [&](const Segment& s) {
        return s.kind == Segment::Kind::kSpecial && s.id == token.id;
      });
      if (wanted != found && compiled.missing.empty()) compiled.missing = token.spelling;
    }
    compiled.note = "chat template: the text between its control tokens has other token ids when it is tokenised on its own";
  }
  if (!any) return *first_error;
  return {};
}

Result<std::vector<Segment>> ChatTemplate::render_context(const Handle& handle, std::string_view context) const {
  RustBuffer out;
  const int32_t status = di_template_render(handle.raw, bytes(context), context.size(), options_.now_unix_s(), &out.raw);
  if (status != DI_TEMPLATE_OK) return to_error(status, out.text());
  std::vector<Segment> segments;
  ByteReader reader(std::as_bytes(std::span(out.raw.data, out.raw.size)));
  while (reader.remaining() > 0) {
    const auto token = static_cast<int32_t>(reader.u32());
    const std::string_view text = reader.text(reader.u32());
    CHECK(reader.ok());
    CHECK(token < static_cast<int32_t>(tokens_.size()));
    if (token < 0) {
      segments.push_back({.kind = Segment::Kind::kPlain, .text = std::string(text)});
    } else {
      const Spelled& spelled = tokens_[static_cast<size_t>(token)];
      segments.push_back({.kind = Segment::Kind::kSpecial, .id = spelled.id, .text = spelled.spelling});
    }
  }
  return segments;
}

Result<Prompt> ChatTemplate::render_with(const Handle& handle, const TemplateTraits& traits,
                                         const Conversation& conversation) const {
  DI_TRY(const TemplateContext context, template_context(conversation, source_, traits));
  Prompt prompt;
  DI_TRY(prompt.segments, render_context(handle, context.json));
  if (!context.cut_mark.empty()) {
    size_t at = std::string::npos;
    while (!prompt.segments.empty()) {  // the last place: a template may show a turn more than once
      Segment& last = prompt.segments.back();
      if (last.kind == Segment::Kind::kPlain) at = last.text.rfind(context.cut_mark);
      if (at != std::string::npos) break;
      prompt.segments.pop_back();
    }
    if (prompt.segments.empty()) {
      return Error{Code::kInvalidArgument, "chat template: it leaves out the last message, so that cannot be continued (prefix)"};
    }
    prompt.segments.back().text.resize(at);
    if (at == 0) prompt.segments.pop_back();
  }
  if (ends_in_open_think(prompt.segments)) {
    prompt.syntax.start = AnswerSyntax::Start::kReasoning;
    prompt.syntax.trim_start = true;
  }
  return prompt;
}

Result<Prompt> ChatTemplate::render(const Conversation& conversation) const {
  Result<Prompt> prompt = render_with(*handle_, traits_, conversation);
  // The conversation is too much for the template, now and later: nothing to retry.
  if (!prompt && prompt.error().code == Code::kResourceExhausted) prompt.error().code = Code::kInvalidArgument;
  return prompt;
}

bool ends_in_open_think(const std::vector<Segment>& segments) {
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    if (segment->kind == Segment::Kind::kSpecial) return segment->text == kThink;
    const size_t end = segment->text.find_last_not_of(kWhiteSpace);
    if (end == std::string::npos) continue;
    return std::string_view(segment->text).substr(0, end + 1).ends_with(kThink);
  }
  return false;
}

}  // namespace deepinfer::recipe
