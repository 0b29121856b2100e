// A foreign model's chat template (Jinja2, run by rust/): conversations to prompts whose control tokens are the template's own.
// How they are told apart from a client's text: docs/decisions/chat-template-marks.md. Immutable after create(); any thread.
//
// Invariants, for every conversation that render() accepts: without spellings of control tokens in a client's text, the prompt's ids
// are those of the rendered text tokenised with control tokens recognised; with any text, a control token is in the prompt only where
// the template wrote one; prompt_text() is what the template renders, byte for byte. Nothing is added: a BOS is there if the template
// writes it, as in transformers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/prompt.h"
#include "recipe/template_context.h"

namespace deepinfer::recipe {

struct ChatTemplateOptions {
  std::string bos, eos;                  // bos_token, eos_token; empty: the tokenizer's
  std::function<int64_t()> now_unix_s;   // for strftime_now(), UTC; empty: the system's clock
};

class ChatTemplate final : public PromptRenderer {
 public:
  // Compiles and tries the template on small conversations. tokenizer: borrowed for the call.
  // Errors: kInvalidArgument (syntax, with its line; refuses even one user message), kUnsupported (statements that chat templates do
  // not need; control tokens that cannot be followed, named), kResourceExhausted (limits passed by a small conversation).
  static Result<std::unique_ptr<ChatTemplate>> create(std::string source, const tokenizer::Tokenizer& tokenizer,
                                                      ChatTemplateOptions options = {});
  ~ChatTemplate() override;

  // Errors: kInvalidArgument (refused by the template, in its words; cannot be applied; limits passed; text and tokens cannot be told
  // apart), kInternal.
  Result<Prompt> render(const Conversation& conversation) const override;

  const std::string& source() const { return source_; }
  // True if the template composes control tokens from pieces, so that each of its characters is followed.
  bool composes_tokens() const { return composes_; }
  // One sentence for the log if the ids of the template's plain text are not quite those of the reference, else empty.
  const std::string& note() const { return note_; }

 private:
  struct Handle;
  struct Spelled {
    TokenId id;
    std::string spelling;
  };
  struct Compiled {
    std::unique_ptr<Handle> handle;
    TemplateTraits traits;
    std::string missing;  // a control token of the plain rendering that was not followed; empty: none
    std::string note;
  };

  ChatTemplate();
  Result<TemplateTraits> find_traits(const Handle& handle) const;
  Result<Compiled> compile(bool characters, const tokenizer::Tokenizer& tokenizer) const;
  Result<> try_out(Compiled& compiled, const tokenizer::Tokenizer& tokenizer) const;
  Result<std::vector<Segment>> render_context(const Handle& handle, std::string_view context) const;
  Result<Prompt> render_with(const Handle& handle, const TemplateTraits& traits, const Conversation& conversation) const;

  std::string source_;
  ChatTemplateOptions options_;
  std::vector<Spelled> tokens_;
  std::unique_ptr<Handle> handle_;
  TemplateTraits traits_;
  bool composes_ = false;
  std::string note_;
};

// The template of a model that has none, from its control tokens: ChatML, Llama 3 or Mistral.
// Errors: kUnsupported, saying that the model has no chat template.
Result<std::string> default_chat_template(const tokenizer::Tokenizer& tokenizer);

// The prompt ends inside an open <think>: nothing but white space after it. As a control token, or as text where it is none.
bool ends_in_open_think(const std::vector<Segment>& segments);

}  // namespace deepinfer::recipe
