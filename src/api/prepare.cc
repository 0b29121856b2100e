#include "api/prepare.h"

#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <chrono>

#include "api/json_reader.h"
#include "recipe/chat_completions.h"
#include "recipe/completions.h"

namespace deepinfer::api {
namespace json = boost::json;
namespace {

// Either the value or what the client is told instead.
template <class T>
using Or = std::variant<T, ApiError>;

int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

ApiError unknown_model(const Service& service, std::string_view name) {
  ApiError error = not_found(fmt::format("the model \"{}\" does not exist; this server has \"{}\"", name.substr(0, 256), service.model_name()));
  error.code = "model_not_found";
  error.param = "model";
  return error;
}

// The field `model`, which must name the one model there is.
Or<std::string> read_model(const Service& service, const json::object& body, bool required) {
  recipe::Problems problems;
  recipe::FieldReader fields(body, "", problems);
  const json::string* name = fields.string("model");
  if (problems.any()) return bad_field(problems.first());
  if (name == nullptr) {
    if (required) return bad_request("model is missing", "model");
    return service.model_name();
  }
  if (!service.knows_model(*name)) return unknown_model(service, *name);
  return std::string(*name);
}

recipe::OptionsContext options_context(const Service& service) {
  return {.defaults = service.options.sampling, .vocab_size = service.inference.model().vocab_size};
}

Or<recipe::Prompt> render(const Service& service, const recipe::Conversation& conversation) {
  if (service.renderer == nullptr) return bad_request("this model has no chat template; use /v1/completions", "messages");
  Result<recipe::Prompt> prompt = service.renderer->render(conversation);
  if (!prompt) {
    ApiError error = from_error(prompt.error(), 0);
    if (error.status == 400) error.param = "messages";
    return error;
  }
  return std::move(prompt).value();
}

std::vector<TokenId> encode(const Service& service, std::string_view text, bool parse_special, bool add_bos) {
  std::vector<TokenId> ids;
  const std::optional<TokenId> bos = service.tokenizer.bos_id();
  if (add_bos && bos) ids.push_back(*bos);
  service.tokenizer.encode(text, parse_special ? tokenizer::Recognize::kAll : tokenizer::Recognize::kNothing, ids);
  return ids;
}

bool completions_add_bos(const Service& service) {
  return service.options.completions_add_bos.value_or(service.tokenizer.add_bos());
}

// What all generating requests have in common once their prompt is known.
Outcome make_generation(Service& service, recipe::GenerationOptions options, std::vector<TokenId> prompt, std::string model, bool chat) {
  const std::string_view param = chat ? "messages" : "prompt";
  if (prompt.empty()) return error_response(bad_request("the prompt is empty", std::string(param)));
  const int64_t max_context = service.inference.model().max_context;
  const int64_t num_prompt = static_cast<int64_t>(prompt.size());
  const int64_t left = max_context - num_prompt;
  if (left < options.max_tokens.value_or(1)) {
    return error_response(context_exceeded({.num_prompt_tokens = num_prompt, .max_tokens = options.max_tokens.value_or(0),
                                            .max_context = max_context, .param = param}));
  }
  options.sampling.max_tokens = options.max_tokens.value_or(static_cast<int32_t>(left));
  if (options.sampling.min_tokens > options.sampling.max_tokens) {
    return error_response(bad_request("min_tokens is above max_tokens", "min_tokens"));
  }
  if (!options.has_seed) options.sampling.seed = service.random_u64();
  Generation out;
  out.chat = chat;
  out.info = {.id = service.new_id(chat ? "chatcmpl-" : "cmpl-"),
              .model = std::move(model),
              .system_fingerprint = service.options.system_fingerprint,
              .created_unix_s = unix_now(),
              .n = options.n,
              .stream = options.stream,
              .include_usage = options.include_usage,
              .logprobs = options.sampling.top_logprobs >= 0};
  out.output = {.split_reasoning = chat, .stop = std::move(options.stop), .keep_token_events = out.info.logprobs};
  out.request = {.prompt = std::move(prompt), .sampling = std::move(options.sampling), .n = options.n, .cache_salt = std::move(options.cache_salt)};
  return out;
}

// The cheap bound that comes before rendering.
std::optional<ApiError> queue_problem(const Service& service) {
  if (service.draining) return draining();
  if (!service.queue_is_full(/*num_own=*/1)) return std::nullopt;
  return queue_full(retry_after_seconds(service.inference.stats().estimated_queue_seconds));
}

Outcome prepare_chat(Service& service, const json::object& body, std::string model) {
  recipe::Problems problems;
  std::optional<recipe::ChatRequest> chat = recipe::parse_chat_request(body, options_context(service), problems);
  if (!chat) return error_response(bad_field(problems.first()));
  if (const std::optional<ApiError> full = queue_problem(service)) return error_response(*full);
  Or<recipe::Prompt> prompt = render(service, chat->conversation);
  if (const ApiError* error = std::get_if<ApiError>(&prompt)) return error_response(*error);
  const recipe::Prompt& rendered = std::get<recipe::Prompt>(prompt);
  Outcome out = make_generation(service, std::move(chat->options), recipe::prompt_tokens(rendered, service.tokenizer), std::move(model), true);
  if (Generation* generation = std::get_if<Generation>(&out)) {
    generation->info.starts_in_reasoning = rendered.starts_in_reasoning();
    generation->output.syntax = rendered.syntax;
  }
  return out;
}

Outcome prepare_completion(Service& service, const json::object& body, std::string model) {
  recipe::Problems problems;
  std::optional<recipe::CompletionRequest> request = recipe::parse_completion_request(body, options_context(service), problems);
  if (!request) return error_response(bad_field(problems.first()));
  if (const std::optional<ApiError> full = queue_problem(service)) return error_response(*full);
  std::vector<TokenId> prompt;
  if (const std::string* text = std::get_if<std::string>(&request->prompt)) {
    prompt = encode(service, *text, request->parse_special, completions_add_bos(service));
  } else {
    prompt = std::move(std::get<std::vector<TokenId>>(request->prompt));
  }
  return make_generation(service, std::move(request->options), std::move(prompt), std::move(model), false);
}

Response tokenize(const Service& service, const json::object& body) {
  recipe::Problems problems;
  recipe::FieldReader fields(body, "", problems);
  const bool chat = fields.value("messages") != nullptr;
  const json::string* text = chat ? nullptr : fields.string("prompt");
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  if (!chat && text == nullptr) fields.fail("prompt", "prompt or messages is missing");
  const recipe::Conversation conversation = chat ? recipe::parse_conversation(fields) : recipe::Conversation();
  if (problems.any()) return error_response(bad_field(problems.first()));
  std::vector<TokenId> ids;
  if (chat) {
    const Or<recipe::Prompt> prompt = render(service, conversation);
    if (const ApiError* error = std::get_if<ApiError>(&prompt)) return error_response(*error);
    ids = recipe::prompt_tokens(std::get<recipe::Prompt>(prompt), service.tokenizer);
  } else {
    ids = encode(service, *text, false, add_special && completions_add_bos(service));
  }
  json::object out;
  out["count"] = ids.size();
  out["max_model_len"] = service.inference.model().max_context;
  out["tokens"] = json::array(ids.begin(), ids.end());
  return {.body = json::serialize(out)};
}

Response detokenize(const Service& service, const json::object& body) {
  recipe::Problems problems;
  recipe::FieldReader fields(body, "", problems);
  const json::array* tokens = fields.array("tokens");
  if (tokens == nullptr) fields.fail("tokens", "tokens is missing");
  if (problems.any()) return error_response(bad_field(problems.first()));
  const int32_t vocab_size = service.inference.model().vocab_size;
  std::vector<TokenId> ids;
  ids.reserve(tokens->size());
  for (const json::value& value : *tokens) {
    const std::optional<int64_t> id = recipe::exact_integer(value);
    if (!id || *id < 0 || *id >= vocab_size) {
      return error_response(bad_request(fmt::format("tokens must hold token ids from 0 to {}", vocab_size - 1), "tokens"));
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  json::object out;
  out["prompt"] = service.tokenizer.decode(ids, true);
  return {.body = json::serialize(out)};
}

json::object model_json(const Service& service, std::string_view id) {
  const ModelCard& card = service.inference.model();
  json::object out;
  out["id"] = id;
  out["object"] = "model";
  out["created"] = card.created_unix_s;
  out["owned_by"] = "deepinfer";
  out["max_model_len"] = card.max_context;
  return out;
}

}  // namespace

Response models_response(const Service& service) {
  json::array data;
  data.push_back(model_json(service, service.model_name()));
  for (const std::string& alias : service.options.model_aliases) data.push_back(model_json(service, alias));
  json::object out;
  out["object"] = "list";
  out["data"] = std::move(data);
  return {.body = json::serialize(out)};
}

Response model_response(const Service& service, const std::string& id) {
  if (!service.knows_model(id)) return error_response(unknown_model(service, id));
  return {.body = json::serialize(model_json(service, id))};
}

Outcome prepare(Service& service, Call call) {
  Result<json::object> body = read_json_object(std::move(call.body));
  if (!body) return error_response(bad_request(body.error().message));
  const bool generating = call.endpoint == Endpoint::kChat || call.endpoint == Endpoint::kCompletions;
  Or<std::string> model = read_model(service, *body, generating);
  if (const ApiError* error = std::get_if<ApiError>(&model)) return error_response(*error);
  if (call.endpoint == Endpoint::kTokenize) return tokenize(service, *body);
  if (call.endpoint == Endpoint::kDetokenize) return detokenize(service, *body);
  std::string& name = std::get<std::string>(model);
  Outcome out = call.endpoint == Endpoint::kChat ? prepare_chat(service, *body, std::move(name)) : prepare_completion(service, *body, std::move(name));
  if (Generation* generation = std::get_if<Generation>(&out)) generation->request.tenant = std::move(call.tenant);
  return out;
}

}  // namespace deepinfer::api
