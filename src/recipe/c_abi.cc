// The C interface: thin over the C++ one. Nothing throws through it but std::bad_alloc, which ends the process as it would anywhere.
#include <boost/json/serialize.hpp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "recipe/answer.h"
#include "recipe/chat_template.h"
#include "recipe/constraint.h"
#include "recipe/deepinfer_recipe.h"
#include "recipe/dialect.h"
#include "recipe/encode_request.h"
#include "recipe/json_reader.h"
#include "recipe/protocol.h"
#include "recipe/request_json.h"

using namespace deepinfer;
using namespace deepinfer::recipe;
namespace json = boost::json;

struct di_recipe {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  Dialect dialect = Dialect::kTemplate;
  std::unique_ptr<PromptRenderer> renderer;  // null: text completions only
};

struct di_request {
  Protocol protocol = Protocol::kChat;
  ParsedRequest parsed;
  EncodedRequest encoded;
  Constraint constraint;
  std::string marked;
  mutable std::once_flag json_once;
  mutable std::string json;
};

struct di_answer {
  OutputParser parser;
  std::unique_ptr<Answer> answer;
  std::vector<OutputEvent> outputs;
  std::string events, frames, body;
  Protocol protocol = Protocol::kChat;
  bool stream = false, begun = false, over = false;
};

namespace {

std::string_view view(di_text text) { return {text.data, text.size}; }
di_text text_of(const std::string& text) { return {text.data(), text.size()}; }

di_status fail(const Error& failure, char** error) {
  if (error != nullptr) *error = strdup(failure.message.c_str());
  switch (failure.code) {
    case Code::kInvalidArgument: return DI_INVALID_ARGUMENT;
    case Code::kUnsupported: return DI_UNSUPPORTED;
    case Code::kCorruption: return DI_CORRUPT;
    default: return DI_FAILED;
  }
}

Result<std::unique_ptr<di_recipe>> open_recipe(std::string_view tokenizer_json, std::string_view config_json, const char* dialect,
                                               std::string_view chat_template) {
  auto out = std::make_unique<di_recipe>();
  DI_TRY(out->tokenizer, tokenizer::Tokenizer::from_json(tokenizer_json, "", "tokenizer.json"));
  out->dialect = pick_dialect(config_json, *out->tokenizer);
  if (dialect != nullptr) {
    const std::optional<Dialect> named = dialect_of_name(dialect);
    if (!named) return Error{Code::kInvalidArgument, "there is no dialect \"" + std::string(dialect) + "\""};
    out->dialect = *named;
  }
  if (out->dialect != Dialect::kTemplate) {
    DI_TRY(out->renderer, make_dialect_renderer(out->dialect, *out->tokenizer));
  } else if (!chat_template.empty()) {
    DI_TRY(out->renderer, ChatTemplate::create(std::string(chat_template), *out->tokenizer));
  }
  return out;
}

Result<std::unique_ptr<di_request>> parse(const di_recipe& recipe, di_protocol protocol, std::string_view body) {
  if (protocol < DI_CHAT || protocol > DI_MESSAGES) return Error{Code::kInvalidArgument, "there is no such protocol"};
  DI_TRY(const json::object object, read_json_object(std::string(body)));
  auto out = std::make_unique<di_request>();
  constexpr Protocol kProtocols[] = {Protocol::kChat, Protocol::kCompletions, Protocol::kResponses, Protocol::kMessages};
  out->protocol = kProtocols[protocol];
  RequestContext context;
  context.options.vocab_size = recipe.tokenizer->vocab_size();
  context.options.dialect = recipe.dialect;
  context.options.accepts_images = recipe.dialect != Dialect::kTemplate;
  Problems problems;
  std::optional<ParsedRequest> parsed = parse_request(out->protocol, object, context, problems);
  if (!parsed) return Error{Code::kInvalidArgument, problems.first().message};
  out->parsed = std::move(*parsed);
  const EncodeContext encode{.tokenizer = *recipe.tokenizer,
                             .renderer = recipe.renderer.get(),
                             .text_bos = recipe.tokenizer->add_bos(),
                             .hides_added_tokens = recipe.dialect != Dialect::kTemplate};
  DI_TRY(out->encoded, encode_request(out->parsed, encode));
  DI_TRY(out->constraint, make_constraint(out->parsed, out->encoded.prompt.syntax, recipe.dialect, *recipe.tokenizer));
  out->marked = prompt_text_marked(out->encoded.prompt);
  return out;
}

json::object fault_json(Protocol protocol, std::string_view message) {
  return protocol == Protocol::kMessages ? messages_error_json("api_error", message) : openai_error_json("internal_error", "internal_error", message);
}

json::array event_json(const OutputEvent& event) {
  switch (event.kind) {
    case OutputEvent::Kind::kReasoning: return {"reasoning", event.text};
    case OutputEvent::Kind::kContent: return {"content", event.text};
    case OutputEvent::Kind::kCallStart: return {"call_start", event.call, event.text};
    case OutputEvent::Kind::kArguments: return {"args", event.call, event.text};
    case OutputEvent::Kind::kCallEnd: return {"call_end", event.call};
    case OutputEvent::Kind::kFinished: break;
  }
  constexpr const char* kReasons[] = {"stop", "length", "context", "content_filter", "cancelled", "error"};
  const bool calls = event.reason == FinishReason::kStop && event.num_calls > 0 && !event.stop_string;
  return {"finished", event.stop_string ? "stop_string" : calls ? "tool_calls" : kReasons[static_cast<size_t>(event.reason)]};
}

template <class T, class Pointer>
di_status give(Result<std::unique_ptr<T>> made, Pointer** out, char** error) {
  if (!made) return fail(made.error(), error);
  *out = made->release();
  return DI_OK;
}

}  // namespace

di_status di_recipe_open(di_text tokenizer_json, di_text config_json, const char* dialect, di_text chat_template, di_recipe** out, char** error) {
  return give(open_recipe(view(tokenizer_json), view(config_json), dialect, view(chat_template)), out, error);
}
void di_recipe_free(di_recipe* recipe) { delete recipe; }
const char* di_recipe_dialect(const di_recipe* recipe) { return dialect_name(recipe->dialect).data(); }  // literals end in a zero

di_status di_recipe_encode(const di_recipe* recipe, di_text text, int32_t** out_ids, size_t* out_count) {
  std::vector<TokenId> ids;
  recipe->tokenizer->encode(view(text), tokenizer::Recognize::kNothing, ids);
  auto* copy = static_cast<int32_t*>(std::malloc(ids.size() * sizeof(int32_t) + 1));
  if (copy == nullptr) return DI_FAILED;
  if (!ids.empty()) std::memcpy(copy, ids.data(), ids.size() * sizeof(int32_t));
  *out_ids = copy;
  *out_count = ids.size();
  return DI_OK;
}
void di_ids_free(int32_t* ids) { std::free(ids); }

di_status di_request_parse(const di_recipe* recipe, di_protocol protocol, di_text body, di_request** out, char** error) {
  return give(parse(*recipe, protocol, view(body)), out, error);
}
void di_request_free(di_request* request) { delete request; }
const int32_t* di_request_ids(const di_request* request, size_t* count) {
  *count = request->encoded.ids.size();
  return request->encoded.ids.data();
}
di_text di_request_marked_text(const di_request* request) { return text_of(request->marked); }
di_text di_request_json(const di_request* request) {
  std::call_once(request->json_once, [request] { request->json = json::serialize(request_json(request->parsed, request->encoded, request->constraint)); });
  return text_of(request->json);
}

di_status di_answer_begin(const di_recipe* recipe, const di_request* request, const di_answer_info* info, di_answer** out) {
  const GenerationOptions& options = request->parsed.options;
  AnswerInfo answer_info{.id = info->id != nullptr ? info->id : "",
                         .model = info->model != nullptr ? info->model : "",
                         .created_unix_s = info->created_unix_s,
                         .stream = info->stream != 0,
                         .include_usage = options.include_usage,
                         .starts_in_reasoning = request->encoded.prompt.starts_in_reasoning(),
                         .echo = request->parsed.echo,
                         .tool_names = request->parsed.tool_names};
  OutputOptions output{.syntax = request->encoded.prompt.syntax,
                       .split_reasoning = request->protocol != Protocol::kCompletions,
                       .single_tool_call = options.single_tool_call,
                       .stop = options.stop};
  *out = new di_answer{.parser = OutputParser(*recipe->tokenizer, std::move(output)),
                       .answer = make_answer(request->protocol, std::move(answer_info), *recipe->tokenizer),
                       .outputs = {}, .events = {}, .frames = {}, .body = {},
                       .protocol = request->protocol,
                       .stream = info->stream != 0};
  return DI_OK;
}
void di_answer_free(di_answer* answer) { delete answer; }

di_status di_answer_push(di_answer* answer, di_token token) {
  if (answer->over || token.finish < DI_NOT_FINISHED || token.finish > DI_ERROR) return DI_INVALID_ARGUMENT;
  TokenEvent event{.has_token = token.token >= 0, .token = token.token};
  event.usage = {.prompt_tokens = token.prompt_tokens, .cached_tokens = token.cached_tokens, .completion_tokens = token.completion_tokens};
  constexpr FinishReason kReasons[] = {FinishReason::kStop,          FinishReason::kStop,      FinishReason::kLength, FinishReason::kContext,
                                       FinishReason::kContentFilter, FinishReason::kCancelled, FinishReason::kError};
  if (token.finish != DI_NOT_FINISHED) event.finished = kReasons[token.finish];
  if (token.finish == DI_ERROR) event.message = "the model failed";
  answer->outputs.clear();
  answer->frames.clear();
  const bool fault = token.finish == DI_ERROR || (token.finish == DI_CANCELLED && !answer->parser.stopped());
  if (answer->stream && !answer->begun && !fault) answer->answer->begin_stream(event.usage, answer->frames);
  answer->begun = true;
  answer->parser.push(event, answer->outputs);
  json::array events;
  for (const OutputEvent& output : answer->outputs) {
    events.push_back(event_json(output));
    answer->answer->on_output(0, output, answer->frames);
  }
  answer->events = json::serialize(events);
  if (!event.finished) return DI_OK;
  answer->over = true;
  if (!answer->stream) return DI_OK;
  if (answer->answer->failed()) {
    const std::string_view message = fault && token.finish == DI_CANCELLED ? "the request was cancelled" : "the model failed";
    answer->answer->fail_stream(fault_json(answer->protocol, message), message, answer->frames);
  } else {
    answer->answer->end_stream(answer->frames);
  }
  return DI_OK;
}

int di_answer_stopped(const di_answer* answer) { return answer->parser.stopped() ? 1 : 0; }
di_text di_answer_events(const di_answer* answer) { return text_of(answer->events); }
di_text di_answer_frames(const di_answer* answer) { return text_of(answer->frames); }
di_text di_answer_body(di_answer* answer) {
  if (answer->over && !answer->answer->failed()) answer->body = answer->answer->body();
  return text_of(answer->body);
}

void di_error_free(char* error) { std::free(error); }
