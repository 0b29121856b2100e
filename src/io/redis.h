// io/redis.h: KeyValues in a Redis server, over hiredis. Connects when first used and again after an error; each wait for the server is
// bounded. Commands of a call go out together (a pipeline), so a call costs one round trip. One server: a cluster's redirections are errors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "io/key_values.h"

struct redisContext;

namespace deepinfer::io {

struct RedisAddress {
  std::string host;
  int32_t port = 6379;
  int32_t database = 0;
  std::string user, password;  // empty: none
};
// "redis://[[user]:password@]host[:port][/database]"; %XX in user and password are bytes. Errors: kInvalidArgument, with what is wrong.
Result<RedisAddress> parse_redis_url(const std::string& url);

class Redis final : public KeyValues {
 public:
  static constexpr int64_t kConnectMs = 250, kAnswerMs = 100;  // the longest waits: for a connection, for the next bytes of an answer

  explicit Redis(RedisAddress address);
  Result<> put(std::span<const Item> items) override;
  Result<std::vector<std::string>> get(std::span<const std::string> keys) override;

 private:
  struct Close {
    void operator()(redisContext* context) const;
  };
  Result<> connect();
  Error lost(const std::string& what);  // closes the connection and says why

  const RedisAddress address_;
  const std::string name_;  // for messages: without the password
  std::unique_ptr<redisContext, Close> context_;
};

}  // namespace deepinfer::io
