#include "api/prepare.h"

#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <algorithm>
#include <limits>

#include "recipe/json_reader.h"
#include "api/image_source.h"
#include "api/kept_responses.h"
#include "recipe/chat_completions.h"
#include "recipe/completions.h"
#include "recipe/constraint.h"
#include "recipe/encode_request.h"

namespace deepinfer::api {
namespace json = boost::json;
namespace {

// Either the value or what the client is told instead.
template <class T>
using Or = std::variant<T, ApiError>;

// What sealed reasoning is bound to: nobody else's request can hand it back.
std::string reasoning_context(const std::string& tenant) { return "reasoning of " + tenant; }

ApiError unknown_model(const Service& service, std::string_view name) {
  ApiError error = not_found(fmt::format("the model \"{}\" does not exist; this server has \"{}\"", recipe::quotable(name), service.model_name()));
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

recipe::RequestContext request_context(Service& service, const std::string& tenant) {
  recipe::RequestContext out{.options = {.defaults = service.options.sampling,
                                         .vocab_size = service.inference.model().vocab_size,
                                         .dialect = service.options.dialect,
                                         .accepts_images = service.inference.model().image_token_id >= 0 || service.options.dialect == recipe::Dialect::kV4 ||
                                                           service.options.dialect == recipe::Dialect::kV4Preview,
                                         .force_thinking_sampling = service.options.force_thinking_sampling}};
  out.open_reasoning = [&service, tenant](std::string_view sealed) { return service.sealer.open(sealed, reasoning_context(tenant)); };
  if (service.store != nullptr) {
    out.stored_items = [&service, tenant](const std::string& id) { return stored_items(service, id, tenant); };
    out.stored_item = [&service, tenant](const std::string& id) { return stored_item(service, id, tenant); };
  }
  return out;
}

// The field of a request in which its prompt is.
std::string_view prompt_field(recipe::Protocol protocol) {
  switch (protocol) {
    case recipe::Protocol::kCompletions: return "prompt";
    case recipe::Protocol::kResponses: return "input";
    default: return "messages";
  }
}

bool completions_add_bos(const Service& service) {
  return service.options.completions_add_bos.value_or(service.tokenizer.add_bos());
}

// The field that an error of encoding speaks of.
std::string_view faulty_field(const recipe::ParsedRequest& request, std::string_view prompt_field) {
  const auto* text = std::get_if<recipe::TextPrompt>(&request.prompt);
  return text != nullptr && text->suffix ? "suffix" : prompt_field;
}

Or<recipe::EncodedRequest> encode(Service& service, const recipe::ParsedRequest& request, const std::string& tenant, std::string_view field, bool text_bos) {
  if (service.renderer == nullptr && std::holds_alternative<recipe::Conversation>(request.prompt)) {
    return bad_request("this model has no chat template; use /v1/completions", std::string(field));
  }
  if (const auto* conversation = std::get_if<recipe::Conversation>(&request.prompt)) {
    if (std::optional<ApiError> error = too_many_images(service, *conversation)) return std::move(*error);
  }
  const Digest256 scope = knowledge_scope(tenant, request.options.cache_salt);
  ImageSource images(service, scope);
  Result<recipe::EncodedRequest> encoded = recipe::encode_request(
      request, {.tokenizer = service.tokenizer, .renderer = service.renderer, .text_bos = text_bos,
                .hides_added_tokens = service.options.dialect != recipe::Dialect::kTemplate, .cache = &service.token_cache, .scope = scope,
                .read_image = [&images](const recipe::Image& image) { return images.read(image); }});
  if (encoded) return std::move(*encoded);
  if (images.problem()) return std::move(*images.problem());
  ApiError error = from_error(encoded.error(), 0);
  if (error.status == 400) error.param = faulty_field(request, field);
  return error;
}

Or<recipe::EncodedRequest> encode_prompt(Service& service, const recipe::ParsedRequest& request, recipe::Protocol protocol, const std::string& tenant) {
  return encode(service, request, tenant, prompt_field(protocol), completions_add_bos(service));
}

// Sets max_tokens to what was asked for or what is left.
std::optional<ApiError> fit_length(const Service& service, int64_t num_prompt, recipe::Protocol protocol, recipe::GenerationOptions& options) {
  const std::string_view field = prompt_field(protocol);
  if (num_prompt == 0) return bad_request("the prompt is empty", std::string(field));
  const int64_t max_context = service.inference.model().max_context;
  const int64_t left = max_context - num_prompt;
  if (left < options.max_tokens.value_or(1)) {
    return context_exceeded({.num_prompt_tokens = num_prompt, .max_tokens = options.max_tokens.value_or(0), .max_context = max_context, .param = field});
  }
  const int64_t usual = std::min<int64_t>(left, options.default_max_tokens.value_or(std::numeric_limits<int32_t>::max()));
  options.sampling.max_tokens = options.max_tokens.value_or(static_cast<int32_t>(usual));
  if (options.sampling.min_tokens > options.sampling.max_tokens) return bad_request("min_tokens is above max_tokens", "min_tokens");
  return std::nullopt;
}

void limit_thinking(const Service& service, const recipe::GenerationOptions& options, const recipe::AnswerSyntax& syntax, SamplingParams& sampling) {
  const std::optional<TokenId> end = service.tokenizer.special_id("</think>");
  if (!options.thinking_budget || syntax.start != recipe::AnswerSyntax::Start::kReasoning || !end) return;
  sampling.thinking_budget = *options.thinking_budget;
  sampling.thinking_end = *end;
}

std::string_view id_prefix(recipe::Protocol protocol) {
  switch (protocol) {
    case recipe::Protocol::kChat: return "chatcmpl-";
    case recipe::Protocol::kCompletions: return "cmpl-";
    case recipe::Protocol::kResponses: return "resp_";
    case recipe::Protocol::kMessages: break;
  }
  return "msg_";
}

// What the answer has to be, compiled here, where nobody waits: the engine finds it ready.
std::optional<ApiError> constrain(Service& service, const recipe::ParsedRequest& request, const recipe::AnswerSyntax& syntax, recipe::Protocol protocol,
                                  const std::string& tenant, Constraint& out) {
  Result<> ready;
  std::string refused;
  // A call that is demanded follows its tool's schema; of a tool that is not strict only if the schema can be honoured.
  for (const recipe::SchemasOf schemas : {recipe::SchemasOf::kForcedTools, recipe::SchemasOf::kStrictTools}) {
    Result<Constraint> wanted = recipe::make_constraint(request, syntax, service.options.dialect, service.tokenizer, schemas);
    if (wanted && !refused.empty() && wanted->spec == refused) break;
    if (wanted) wanted->scope = knowledge_scope(tenant);  // whatever the salt: compiling is slow, and schemas come from who writes the client
    ready = !wanted ? Result<>(wanted.error()) : wanted->spec.empty() ? Result<>() : service.inference.prepare(*wanted);
    if (ready) {
      out = std::move(*wanted);
      return std::nullopt;
    }
    if (wanted) refused = std::move(wanted->spec);
  }
  ApiError error = from_error(ready.error(), 0);
  if (error.status == 400) error.param = recipe::constraint_field(request, protocol);
  return error;
}

// What all generating requests have in common once their prompt is known.
Outcome make_generation(Service& service, recipe::ParsedRequest parsed, recipe::EncodedRequest prompt, std::string model, recipe::Protocol protocol,
                        const std::string& tenant) {
  recipe::GenerationOptions& options = parsed.options;
  if (std::optional<ApiError> error = fit_length(service, static_cast<int64_t>(prompt.ids.size()), protocol, options)) return std::move(*error);
  Constraint constraint;
  if (std::optional<ApiError> error = constrain(service, parsed, prompt.prompt.syntax, protocol, tenant, constraint)) return std::move(*error);
  if (!options.has_seed) options.sampling.seed = service.random_u64();
  limit_thinking(service, options, prompt.prompt.syntax, options.sampling);
  Generation out{.protocol = protocol};
  out.info = {.id = service.new_id(id_prefix(protocol)),
              .model = std::move(model),
              .system_fingerprint = service.options.system_fingerprint,
              .created_unix_s = unix_now(),
              .n = options.n,
              .stream = options.stream,
              .include_usage = options.include_usage,
              .logprobs = options.sampling.top_logprobs >= 0,
              .starts_in_reasoning = prompt.prompt.syntax.start == recipe::AnswerSyntax::Start::kReasoning,
              .echo = std::move(parsed.echo),
              .tool_names = std::move(parsed.tool_names)};
  if (parsed.seal_reasoning) {
    out.info.seal = [&service, tenant](std::string_view text) { return service.sealer.seal(text, reasoning_context(tenant)); };
  }
  if (protocol == recipe::Protocol::kResponses && parsed.store && service.store != nullptr) {
    out.info.echo["store"] = true;
    out.keep = Keep{.previous_id = parsed.previous_id.value_or(""), .input = json::serialize(parsed.items)};
  }
  out.output = {.syntax = std::move(prompt.prompt.syntax),
                .split_reasoning = protocol != recipe::Protocol::kCompletions,
                .single_tool_call = options.single_tool_call,
                .stop = std::move(options.stop),
                .keep_token_events = out.info.logprobs};
  out.request = {.prompt = std::move(prompt.ids),
                 .images = std::move(prompt.images),
                 .sampling = std::move(options.sampling),
                 .constraint = std::move(constraint),
                 .n = options.n,
                 .tenant = tenant,
                 .cache_salt = std::move(options.cache_salt),
                 .retention = std::move(options.retention)};
  return out;
}

// The cheap bound that comes before rendering.
std::optional<ApiError> queue_problem(const Service& service) {
  if (service.draining) return draining();
  if (!service.queue_is_full(/*num_own=*/1)) return std::nullopt;
  return queue_full(retry_after_seconds(service.inference.stats().estimated_queue_seconds));
}

Or<recipe::ParsedRequest> parse(Service& service, const json::object& body, recipe::Protocol protocol, const std::string& tenant) {
  recipe::Problems problems;
  std::optional<recipe::ParsedRequest> request = recipe::parse_request(protocol, body, request_context(service, tenant), problems);
  if (!request) return bad_field(problems.first());
  return std::move(*request);
}

// For how long its blocks are kept, as a class: the request says so, or its header, or it is known of its tenant. Else: agents come back within
// hours or not at all; people's chats go on for days.
std::string retention_of(const Service& service, const recipe::ParsedRequest& request, const Call& call) {
  if (!request.options.retention.empty()) return request.options.retention;
  if (!call.retention.empty()) return call.retention;
  const auto& of_tenants = service.options.tenant_retention;
  if (const auto of_tenant = of_tenants.find(call.tenant); of_tenant != of_tenants.end()) return of_tenant->second;
  const recipe::Conversation* conversation = std::get_if<recipe::Conversation>(&request.prompt);
  return conversation != nullptr && conversation->tools_active() ? "agent" : "";
}

Outcome prepare_generation(Service& service, const json::object& body, std::string model, recipe::Protocol protocol, const Call& call) {
  Or<recipe::ParsedRequest> parsed = parse(service, body, protocol, call.tenant);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  if (std::optional<ApiError> full = queue_problem(service)) return std::move(*full);
  recipe::ParsedRequest& request = std::get<recipe::ParsedRequest>(parsed);
  Or<recipe::EncodedRequest> prompt = encode_prompt(service, request, protocol, call.tenant);
  if (ApiError* error = std::get_if<ApiError>(&prompt)) return std::move(*error);
  request.options.retention = retention_of(service, request, call);
  return make_generation(service, std::move(request), std::move(std::get<recipe::EncodedRequest>(prompt)), std::move(model), protocol, call.tenant);
}

// The prompt that the same body would have on /messages or /responses.
Outcome count_tokens(Service& service, const json::object& body, recipe::Protocol protocol, const std::string& tenant) {
  Or<recipe::ParsedRequest> parsed = parse(service, body, protocol, tenant);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  Or<recipe::EncodedRequest> prompt = encode_prompt(service, std::get<recipe::ParsedRequest>(parsed), protocol, tenant);
  if (ApiError* error = std::get_if<ApiError>(&prompt)) return std::move(*error);
  json::object out;
  if (protocol == recipe::Protocol::kResponses) out["object"] = "response.input_tokens";
  out["input_tokens"] = std::get<recipe::EncodedRequest>(prompt).ids.size();
  return Response{.body = json::serialize(out)};
}

Outcome tokenize(Service& service, const json::object& body, const std::string& tenant) {
  recipe::Problems problems;
  recipe::FieldReader fields(body, "", problems);
  const bool chat = fields.value("messages") != nullptr;
  const json::string* text = chat ? nullptr : fields.string("prompt");
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  if (!chat && text == nullptr) fields.fail("prompt", "prompt or messages is missing");
  recipe::ParsedRequest request;
  if (chat) {
    request.prompt = recipe::parse_conversation(fields, request_context(service, tenant).options);
  } else if (text != nullptr) {
    request.prompt = recipe::TextPrompt{.text = std::string(*text)};
  }
  if (problems.any()) return bad_field(problems.first());
  Or<recipe::EncodedRequest> encoded = encode(service, request, tenant, chat ? "messages" : "prompt", add_special && completions_add_bos(service));
  if (ApiError* error = std::get_if<ApiError>(&encoded)) return std::move(*error);
  const std::vector<TokenId>& ids = std::get<recipe::EncodedRequest>(encoded).ids;
  json::object out;
  out["count"] = ids.size();
  out["max_model_len"] = service.inference.model().max_context;
  out["tokens"] = json::array(ids.begin(), ids.end());
  return Response{.body = json::serialize(out)};
}

Outcome detokenize(const Service& service, const json::object& body) {
  recipe::Problems problems;
  recipe::FieldReader fields(body, "", problems);
  const json::array* tokens = fields.array("tokens");
  if (tokens == nullptr) fields.fail("tokens", "tokens is missing");
  if (problems.any()) return bad_field(problems.first());
  const int32_t vocab_size = service.inference.model().vocab_size;
  std::vector<TokenId> ids;
  ids.reserve(tokens->size());
  for (const json::value& value : *tokens) {
    const std::optional<int64_t> id = recipe::exact_integer(value);
    if (!id || *id < 0 || *id >= vocab_size) {
      return bad_request(fmt::format("tokens must hold token ids from 0 to {}", vocab_size - 1), "tokens");
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  json::object out;
  out["prompt"] = service.tokenizer.decode(ids, true);
  return Response{.body = json::serialize(out)};
}

json::object model_json(const Service& service, std::string_view id, ErrorShape shape) {
  const ModelCard& card = service.inference.model();
  if (shape == ErrorShape::kAnthropic) {
    return {{"type", "model"}, {"id", id}, {"display_name", id}, {"created_at", iso_time(card.created_unix_s * 1000)},
            {"max_input_tokens", card.max_context}, {"max_tokens", card.max_context}};
  }
  return {{"id", id}, {"object", "model"}, {"created", card.created_unix_s}, {"owned_by", "deepinfer"}, {"max_model_len", card.max_context}};
}

}  // namespace

Response models_response(const Service& service, ErrorShape shape) {
  json::array data;
  data.push_back(model_json(service, service.model_name(), shape));
  for (const std::string& alias : service.options.model_aliases) {
    if (!alias.ends_with('*')) data.push_back(model_json(service, alias, shape));
  }
  json::object out;
  if (shape == ErrorShape::kAnthropic) {
    out["has_more"] = false;
    out["first_id"] = data.front().at("id");
    out["last_id"] = data.back().at("id");
  } else {
    out["object"] = "list";
  }
  out["data"] = std::move(data);
  return {.body = json::serialize(out)};
}

Or<Response> model_response(const Service& service, const std::string& id, ErrorShape shape) {
  if (!service.knows_model(id)) return unknown_model(service, id);
  return Response{.body = json::serialize(model_json(service, id, shape))};
}

Prepared prepare(Service& service, Call call) {
  switch (call.endpoint) {
    case Endpoint::kResponse:
    case Endpoint::kResponseCancel:
    case Endpoint::kResponseInputItems: return {.outcome = answer_kept_response(service, call), .model = {}};
    default: break;
  }
  Result<json::object> body = recipe::read_json_object(std::move(call.body));
  if (!body) return {.outcome = bad_request(body.error().message), .model = {}};
  const std::optional<recipe::Protocol> protocol = protocol_of(call.endpoint);
  Or<std::string> model = read_model(service, *body, protocol || call.endpoint == Endpoint::kCountTokens || call.endpoint == Endpoint::kInputTokens);
  if (ApiError* error = std::get_if<ApiError>(&model)) return {.outcome = std::move(*error), .model = {}};
  Prepared out{.outcome = {}, .model = std::move(std::get<std::string>(model))};
  if (protocol) {
    out.outcome = prepare_generation(service, *body, out.model, *protocol, call);
  } else if (call.endpoint == Endpoint::kCountTokens) {
    out.outcome = count_tokens(service, *body, recipe::Protocol::kMessages, call.tenant);
  } else if (call.endpoint == Endpoint::kInputTokens) {
    out.outcome = count_tokens(service, *body, recipe::Protocol::kResponses, call.tenant);
  } else if (call.endpoint == Endpoint::kTokenize) {
    out.outcome = tokenize(service, *body, call.tenant);
  } else {
    out.outcome = detokenize(service, *body);
  }
  return out;
}

}  // namespace deepinfer::api
