#include "io/redis.h"

#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "io/no_sigpipe.h"

namespace deepinfer::io {
namespace {

constexpr std::string_view kScheme = "redis://";

timeval to_timeval(int64_t ms) { return {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}; }

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

std::string_view text_of(const redisReply& reply) { return {reply.str, static_cast<size_t>(reply.len)}; }

void append(redisContext* context, std::initializer_list<std::string_view> words) {
  std::vector<const char*> texts;
  std::vector<size_t> lengths;
  for (const std::string_view word : words) {
    texts.push_back(word.data());
    lengths.push_back(word.size());
  }
  const int done = redisAppendCommandArgv(context, static_cast<int>(words.size()), texts.data(), lengths.data());
  CHECK(done == REDIS_OK);  // fails for want of memory alone
}

// Null: the connection is of no use any more; context->errstr says why.
Reply next_reply(redisContext* context) {
  void* reply = nullptr;
  if (redisGetReply(context, &reply) != REDIS_OK) return nullptr;
  return Reply(static_cast<redisReply*>(reply));
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    unsigned value = 0;
    const char* const digits = text.data() + i + 1;
    if (i + 2 >= text.size() || std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2) return std::nullopt;
    out.push_back(static_cast<char>(value));
    i += 2;
  }
  return out;
}

bool parse_number(std::string_view text, int32_t largest, int32_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= 0 && out <= largest;
}

}  // namespace

Result<RedisAddress> parse_redis_url(const std::string& url) {
  const auto wrong = [](const char* what) { return Error{Code::kInvalidArgument, fmt::format("a Redis address is redis://HOST:PORT/DATABASE: {}", what)}; };
  std::string_view rest = url;
  if (!rest.starts_with(kScheme)) return wrong("it begins otherwise");
  rest.remove_prefix(kScheme.size());
  RedisAddress address;
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view account = rest.substr(0, at);
    const size_t colon = account.find(':');
    if (colon == std::string_view::npos) return wrong("before the @ stands USER:PASSWORD or :PASSWORD");
    const auto user = percent_decoded(account.substr(0, colon)), password = percent_decoded(account.substr(colon + 1));
    if (!user || !password) return wrong("a % in user or password stands before two hex digits");
    address.user = *user;
    address.password = *password;
    rest.remove_prefix(at + 1);
  }
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view database = rest.substr(slash + 1);
    if (!database.empty() && !parse_number(database, 1 << 20, address.database)) return wrong("the database is a number");
    rest = rest.substr(0, slash);
  }
  const size_t bracket = rest.starts_with('[') ? rest.find(']') : 0;  // an IPv6 address
  if (bracket == std::string_view::npos) return wrong("a ] is missing");
  if (const size_t colon = rest.find(':', bracket); colon != std::string_view::npos) {
    if (!parse_number(rest.substr(colon + 1), 65535, address.port)) return wrong("the port is a number up to 65535");
    rest = rest.substr(0, colon);
  }
  address.host = bracket > 0 ? rest.substr(1, bracket - 1) : rest;
  if (address.host.empty()) return wrong("the host is missing");
  return address;
}

Redis::Redis(RedisAddress address) : address_(std::move(address)), name_(fmt::format("redis://{}:{}/{}", address_.host, address_.port, address_.database)) {}

void Redis::Close::operator()(redisContext* context) const { redisFree(context); }

Error Redis::lost(const std::string& what) {
  const bool foreign = context_ != nullptr && context_->err == REDIS_ERR_PROTOCOL;
  context_.reset();
  return {foreign ? Code::kCorruption : Code::kUnavailable, name_ + ": " + what};
}

Result<> Redis::connect() {
  if (context_ != nullptr) return {};
  context_.reset(redisConnectWithTimeout(address_.host.c_str(), address_.port, to_timeval(kConnectMs)));
  CHECK(context_ != nullptr);
  if (context_->err != 0) return lost(context_->errstr);
  if (redisSetTimeout(context_.get(), to_timeval(kAnswerMs)) != REDIS_OK) return lost(context_->errstr);
  int num_replies = 0;
  if (!address_.password.empty()) {
    if (address_.user.empty()) {
      append(context_.get(), {"AUTH", address_.password});
    } else {
      append(context_.get(), {"AUTH", address_.user, address_.password});
    }
    num_replies += 1;
  }
  if (address_.database != 0) {
    append(context_.get(), {"SELECT", std::to_string(address_.database)});
    num_replies += 1;
  }
  for (; num_replies > 0; --num_replies) {
    const Reply reply = next_reply(context_.get());
    if (reply == nullptr) return lost(context_->errstr);
    if (reply->type != REDIS_REPLY_STATUS) return lost(reply->type == REDIS_REPLY_ERROR ? std::string(text_of(*reply)) : "an answer of the wrong type");
  }
  return {};
}

Result<> Redis::put(std::span<const Item> items) {
  CHECK(items.size() <= kMaxItems);
  const NoSigpipe guard;
  DI_TRY(connect());
  for (const Item& item : items) append(context_.get(), {"SET", item.key, item.value, "EX", std::to_string(item.seconds)});
  std::string refused;
  for (size_t i = 0; i < items.size(); ++i) {
    const Reply reply = next_reply(context_.get());
    if (reply == nullptr) return lost(context_->errstr);
    if (reply->type != REDIS_REPLY_STATUS && refused.empty()) refused = reply->type == REDIS_REPLY_ERROR ? text_of(*reply) : "an answer of the wrong type";
  }
  if (!refused.empty()) return Error{Code::kResourceExhausted, name_ + ": " + refused};
  return {};
}

Result<std::vector<std::string>> Redis::get(std::span<const std::string> keys) {
  CHECK(keys.size() <= kMaxItems);
  const NoSigpipe guard;
  DI_TRY(connect());
  // GETRANGE and not MGET: a value of half a gigabyte under one of our keys must not come here.
  const std::string last = std::to_string(kMaxValueBytes);
  for (const std::string& key : keys) append(context_.get(), {"GETRANGE", key, "0", last});
  std::vector<std::string> values;
  std::string refused;
  for (size_t i = 0; i < keys.size(); ++i) {
    const Reply reply = next_reply(context_.get());
    if (reply == nullptr) return lost(context_->errstr);
    if (reply->type == REDIS_REPLY_STRING) {
      values.emplace_back(text_of(*reply));
      continue;
    }
    values.emplace_back();
    // Another type of value under our key is somebody's rubbish, and no value; any other refusal is the server's.
    const std::string_view why = reply->type == REDIS_REPLY_ERROR ? text_of(*reply) : "an answer of the wrong type";
    if (!why.starts_with("WRONGTYPE")) refused = why;
  }
  if (!refused.empty()) return Error{Code::kUnavailable, name_ + ": " + refused};
  return values;
}

}  // namespace deepinfer::io
