#include "api/kept_responses.h"

#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <algorithm>
#include <vector>

#include "recipe/fields.h"
#include "recipe/json_reader.h"

namespace deepinfer::api {
namespace json = boost::json;
namespace {

constexpr size_t kMaxChain = 1000;
constexpr size_t kMaxChainBytes = 256u << 20;
constexpr int64_t kDefaultPage = 20, kMaxPage = 100;

ApiError no_such_response(const std::string& id) {
  return not_found(fmt::format("the response \"{}\" does not exist, or is no longer kept", recipe::quotable(id)));
}

Result<StoredResponse> load(Service& service, const std::string& id, const std::string& tenant) {
  if (service.store == nullptr) return Error{Code::kNotFound, "no store"};
  return service.store->get(id, tenant, unix_now());
}

ApiError load_error(const Error& error, const std::string& id) {
  return error.code == Code::kNotFound ? no_such_response(id) : from_error(error, 0);
}

// Our own texts; damage in the file is told by the store's checks, and an unreadable text is no items.
json::value reread(const std::string& text) {
  return recipe::parse_json(text).value_or(json::value());
}

Outcome get_response(Service& service, const Call& call) {
  if (query_value(call.query, "stream").value_or("false") == "true") return bad_request("a kept response cannot be streamed", "stream");
  if (const std::optional<LiveResponses::Entry> live = service.live.find(call.id, call.tenant)) return Response{.body = live->response};
  Result<StoredResponse> stored = load(service, call.id, call.tenant);
  if (!stored) return load_error(stored.error(), call.id);
  return Response{.body = std::move(stored->response)};
}

void cancel_live(Service& service, const LiveResponses::Entry& live) {
  *live.cancelled = true;
  service.inference.cancel(live.request);
}

// One that is being made ends and is not kept. It may be on its way into the store just now: whoever puts it there looks at `removed` afterwards.
Outcome remove_response(Service& service, const Call& call) {
  const std::optional<LiveResponses::Entry> live = service.live.find(call.id, call.tenant);
  if (live) {
    *live->removed = true;
    service.live.remove(call.id);
    cancel_live(service, *live);
  }
  const Result<> removed = service.store != nullptr ? service.store->remove(call.id, call.tenant, unix_now()) : Error{Code::kNotFound, "no store"};
  if (!removed && !(live && removed.error().code == Code::kNotFound)) return load_error(removed.error(), call.id);
  return Response{.body = json::serialize(json::object{{"id", call.id}, {"object", "response"}, {"deleted", true}})};
}

Outcome cancel_response(Service& service, const Call& call) {
  if (const std::optional<LiveResponses::Entry> live = service.live.find(call.id, call.tenant)) {
    cancel_live(service, *live);
    json::value response = reread(live->response);
    response.as_object()["status"] = "cancelled";
    return Response{.body = json::serialize(response)};
  }
  const Result<StoredResponse> stored = load(service, call.id, call.tenant);
  if (!stored) return load_error(stored.error(), call.id);
  return bad_request("the response is complete; there is nothing to cancel");
}

// An input item as a list shows it: with an id, and a message's text as parts.
json::object shown_item(const json::value& value, std::string_view id) {
  json::object item = value.as_object();
  if (!item.contains("id") || item["id"].is_null()) item["id"] = id;
  if (!item.contains("type")) item["type"] = "message";
  if (item["type"] == "message") {
    json::value& content = item["content"];
    if (content.is_string()) {
      const bool own = item["role"] == "assistant";
      json::object part{{"type", own ? "output_text" : "input_text"}, {"text", content.get_string()}};
      if (own) part["annotations"] = json::array();
      content = json::array{std::move(part)};
    }
    if (!item.contains("status")) item["status"] = "completed";
  }
  return item;
}

Outcome list_input(Service& service, const Call& call) {
  int64_t limit = kDefaultPage;
  if (const std::optional<std::string> asked = query_value(call.query, "limit")) {
    const bool digits = !asked->empty() && asked->size() <= 4 && asked->find_first_not_of("0123456789") == std::string::npos;
    limit = digits ? std::stoll(*asked) : 0;
    if (limit < 1 || limit > kMaxPage) return bad_request(fmt::format("limit must be an integer from 1 to {}", kMaxPage), "limit");
  }
  const std::string order = query_value(call.query, "order").value_or("desc");
  if (order != "asc" && order != "desc") return bad_request("order must be asc or desc", "order");
  const Result<StoredResponse> stored = load(service, call.id, call.tenant);
  if (!stored) return load_error(stored.error(), call.id);

  std::vector<json::object> items;
  if (const json::value input = reread(stored->input); input.is_array()) {
    for (const json::value& item : input.get_array()) items.push_back(shown_item(item, fmt::format("item_{}_{}", call.id, items.size())));
  }
  if (order == "desc") std::reverse(items.begin(), items.end());
  auto begin = items.begin();
  if (const std::optional<std::string> after = query_value(call.query, "after")) {
    begin = std::find_if(items.begin(), items.end(), [&](const json::object& item) {
      const json::string* id = item.at("id").if_string();
      return id != nullptr && std::string_view(*id) == *after;
    });
    if (begin == items.end()) return bad_request("after names no item of this response", "after");
    ++begin;
  }
  const auto end = begin + std::min<ptrdiff_t>(limit, items.end() - begin);
  json::object out{{"object", "list"}, {"data", json::array(begin, end)}};
  out["first_id"] = begin == end ? json::value() : begin->at("id");
  out["last_id"] = begin == end ? json::value() : (end - 1)->at("id");
  out["has_more"] = end != items.end();
  return Response{.body = json::serialize(out)};
}

}  // namespace

Outcome answer_kept_response(Service& service, const Call& call) {
  if (call.endpoint == Endpoint::kResponseCancel) return cancel_response(service, call);
  if (call.endpoint == Endpoint::kResponseInputItems) return list_input(service, call);
  return call.remove ? remove_response(service, call) : get_response(service, call);
}

std::optional<json::array> stored_items(Service& service, const std::string& id, const std::string& tenant) {
  if (id.empty()) return std::nullopt;  // names none
  std::vector<StoredResponse> chain;
  size_t bytes = 0;
  for (std::string next = id; !next.empty(); next = chain.back().previous_id) {
    Result<StoredResponse> stored = load(service, next, tenant);
    if (!stored || chain.size() == kMaxChain) return std::nullopt;
    bytes += stored->input.size() + stored->response.size();
    if (bytes > kMaxChainBytes) return std::nullopt;
    chain.push_back(std::move(*stored));
  }
  json::array out;
  const auto append = [&](const json::value* items) {
    if (items != nullptr && items->is_array()) out.insert(out.end(), items->get_array().begin(), items->get_array().end());
  };
  for (auto stored = chain.rbegin(); stored != chain.rend(); ++stored) {
    const json::value input = reread(stored->input), response = reread(stored->response);
    append(&input);
    append(response.is_object() ? response.get_object().if_contains("output") : nullptr);
  }
  return out;
}

// Ids of items have the middle of their response's id in them.
std::optional<json::value> stored_item(Service& service, const std::string& id, const std::string& tenant) {
  const size_t begin = id.find('_'), end = id.rfind('_');
  if (begin == std::string::npos || end <= begin) return std::nullopt;
  const Result<StoredResponse> stored = load(service, "resp_" + id.substr(begin + 1, end - begin - 1), tenant);
  if (!stored) return std::nullopt;
  const json::value response = reread(stored->response);
  const json::value* output = response.is_object() ? response.get_object().if_contains("output") : nullptr;
  if (output == nullptr || !output->is_array()) return std::nullopt;
  for (const json::value& item : output->get_array()) {
    const json::value* own = item.is_object() ? item.get_object().if_contains("id") : nullptr;
    if (own != nullptr && own->is_string() && std::string_view(own->get_string()) == id) return item;
  }
  return std::nullopt;
}

}  // namespace deepinfer::api
