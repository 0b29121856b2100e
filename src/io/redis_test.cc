// The Redis client, against a real server and against things that only look like one. Without redis-server in the path those tests skip.
#include "io/redis.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "eventually.h"

namespace deepinfer::io {
namespace {

TEST(RedisUrl, WhatItMayBe) {
  const auto parsed = [](const char* url) {
    const Result<RedisAddress> a = parse_redis_url(url);
    return a ? a->host + "|" + std::to_string(a->port) + "|" + std::to_string(a->database) + "|" + a->user + "|" + a->password : "refused";
  };
  EXPECT_EQ(parsed("redis://h"), "h|6379|0||");
  EXPECT_EQ(parsed("redis://h/"), "h|6379|0||");
  EXPECT_EQ(parsed("redis://h:7000/3"), "h|7000|3||");
  EXPECT_EQ(parsed("redis://:p%40s@h:1"), "h|1|0||p@s");
  EXPECT_EQ(parsed("redis://u:p@q@h"), "h|6379|0|u|p@q");
  EXPECT_EQ(parsed("redis://[::1]:7000/1"), "::1|7000|1||");
  EXPECT_EQ(parsed("redis://[::1]"), "::1|6379|0||");
  for (const char* bad : {"", "h", "rediss://h", "redis://", "redis://h:x", "redis://h:70000", "redis://h:1/x", "redis://user@h", "redis://:%4@h", "redis://:%zz@h",
                          "redis://[::1", "redis://:1"}) {
    EXPECT_EQ(parsed(bad), "refused") << bad;
  }
}

// A socket that listens on a free port of loopback.
struct Listener {
  Listener() : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd, 8), 0);
    EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = ntohs(address.sin_port);
  }
  ~Listener() { ::close(fd); }
  int fd;
  int port = 0;
};

RedisAddress at(int port, const std::string& password = "") { return {.host = "127.0.0.1", .port = port, .password = password}; }

class RealRedis : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v redis-server > /dev/null") != 0) GTEST_SKIP() << "no redis-server";
    port_ = Listener().port;
    start();
  }
  void TearDown() override { stop(); }

  void start(const char* password = "") {
    process_ = ::fork();
    if (process_ == 0) {
      ::execlp("redis-server", "redis-server", "--port", std::to_string(port_).c_str(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--requirepass", password,
               "--maxmemory", "64mb", "--maxmemory-policy", "noeviction", "--logfile", "/dev/null", nullptr);
      ::_exit(127);
    }
    Redis redis(at(port_, password));
    ASSERT_TRUE(eventually([&] { return redis.get({}).has_value(); }));
  }
  void stop() {
    if (process_ <= 0) return;
    ::kill(process_, SIGCONT);
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

  int port_ = 0;
  pid_t process_ = 0;
};

TEST_F(RealRedis, WhatIsPutIsThereForItsTime) {
  Redis redis(at(port_));
  const std::string binary("k\0\r\n\xff", 5), keys[] = {binary, "absent", "short"};
  const KeyValues::Item items[] = {{.key = binary, .value = "v 1", .seconds = 100}, {.key = "short", .value = "v", .seconds = 1}};
  ASSERT_TRUE(redis.put(items));
  Redis other(at(port_));
  EXPECT_EQ(*other.get(keys), (std::vector<std::string>{"v 1", "", "v"}));
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  EXPECT_EQ(*other.get(keys), (std::vector<std::string>{"v 1", "", ""}));
  std::vector<KeyValues::Item> many(KeyValues::kMaxItems);
  std::vector<std::string> names;
  for (size_t i = 0; i < many.size(); ++i) {
    many[i] = {.key = "k" + std::to_string(i), .value = std::to_string(i), .seconds = 100};
    names.push_back(many[i].key);
  }
  ASSERT_TRUE(redis.put(many));
  const Result<std::vector<std::string>> back = redis.get(names);
  ASSERT_TRUE(back);
  for (size_t i = 0; i < many.size(); ++i) EXPECT_EQ((*back)[i], many[i].value);
}

TEST_F(RealRedis, DatabasesArePartsOfTheirOwn) {
  RedisAddress third = at(port_);
  third.database = 3;
  const KeyValues::Item item{.key = "k", .value = "v", .seconds = 100};
  const std::string key = "k";
  ASSERT_TRUE(Redis(third).put({&item, 1}));
  EXPECT_EQ(Redis(third).get({&key, 1})->front(), "v");
  EXPECT_EQ(Redis(at(port_)).get({&key, 1})->front(), "");
  third.database = 1000;
  EXPECT_EQ(Redis(third).get({&key, 1}).error().code, Code::kUnavailable);
}

TEST_F(RealRedis, AHugeOrForeignValueDoesNotComeWhole) {
  Redis redis(at(port_));
  const KeyValues::Item item{.key = "big", .value = std::string(10 << 20, 'x'), .seconds = 100};
  ASSERT_TRUE(redis.put({&item, 1}));
  const std::string list = "redis-cli -p " + std::to_string(port_) + " lpush list a b c > /dev/null";
  ASSERT_EQ(std::system(list.c_str()), 0);
  const std::string keys[] = {"big", "list", "big"};
  const Result<std::vector<std::string>> values = redis.get(keys);
  ASSERT_TRUE(values);
  EXPECT_EQ((*values)[0], std::string(KeyValues::kMaxValueBytes + 1, 'x'));
  EXPECT_EQ((*values)[1], "");
  EXPECT_EQ((*values)[2].size(), KeyValues::kMaxValueBytes + 1);
}

TEST_F(RealRedis, FullItRefusesWritesAndAnswersReads) {
  Redis redis(at(port_));
  const KeyValues::Item small{.key = "small", .value = "v", .seconds = 100};
  ASSERT_TRUE(redis.put({&small, 1}));
  Result<> put;
  for (int i = 0; i < 100 && put; ++i) {
    const KeyValues::Item big{.key = "big" + std::to_string(i), .value = std::string(4 << 20, 'x'), .seconds = 100};
    put = redis.put({&big, 1});
  }
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kResourceExhausted) << put.error().message;
  EXPECT_EQ(redis.get({&small.key, 1})->front(), "v");
}

TEST_F(RealRedis, KilledItIsAnErrorAndAnotherOneIsFound) {
  Redis redis(at(port_));
  const KeyValues::Item item{.key = "k", .value = "v", .seconds = 100};
  ASSERT_TRUE(redis.put({&item, 1}));
  stop();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(redis.put({&item, 1}).error().code, Code::kUnavailable);
  start();
  ASSERT_TRUE(redis.put({&item, 1}));
  EXPECT_EQ(redis.get({&item.key, 1})->front(), "v");
}

TEST_F(RealRedis, AStoppedOneIsWaitedForABoundedTime) {
  Redis redis(at(port_));
  const std::string key = "k";
  ASSERT_TRUE(redis.get({&key, 1}));
  ::kill(process_, SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(redis.get({&key, 1}).error().code, Code::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << "a tenth of a second, on a machine with time";
  ::kill(process_, SIGCONT);
  EXPECT_TRUE(eventually([&] { return redis.get({&key, 1}).has_value(); }));
}

TEST_F(RealRedis, ThePasswordIsNeededAndNotTold) {
  stop();
  start("secret word");
  const std::string key = "k";
  EXPECT_TRUE(Redis(at(port_, "secret word")).get({&key, 1}));
  RedisAddress named = at(port_, "secret word");
  named.user = "default";
  EXPECT_TRUE(Redis(named).get({&key, 1}));
  const Result<std::vector<std::string>> none = Redis(at(port_)).get({&key, 1}), wrong = Redis(at(port_, "other word")).get({&key, 1});
  EXPECT_EQ(none.error().code, Code::kUnavailable);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message.find("other word"), std::string::npos);
}

// Whoever answers something else than Redis would.
TEST(FalseRedis, IsAnError) {
  for (const char* answer : {"HTTP/1.1 400 Bad Request\r\n\r\n", "\x01\x02\x03\x04", "$99999999999999999999\r\n", "*1\r\n$3\r\nabc\r\n", ":1\r\n", "$-1\r\n", ""}) {
    const Listener listener;
    std::thread server([&] {
      const int connection = ::accept(listener.fd, nullptr, nullptr);
      char bytes[4096];
      EXPECT_GT(::read(connection, bytes, sizeof bytes), 0);
      EXPECT_GE(::send(connection, answer, std::strlen(answer), MSG_NOSIGNAL), 0);
      ::close(connection);
    });
    Redis redis(at(listener.port));
    const std::string key = "k";
    const Result<std::vector<std::string>> values = redis.get({&key, 1});
    server.join();
    EXPECT_FALSE(values) << answer;
  }
}

}  // namespace
}  // namespace deepinfer::io
