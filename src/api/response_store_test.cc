#include "api/response_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "temp_folder.h"

namespace deepinfer::api {
namespace {

constexpr int64_t kNow = 1'700'000'000;

class ResponseStoreTest : public testing::Test {
 protected:
  ResponseStoreTest() : path_(temp_folder() + "responses-" + testing::UnitTest::GetInstance()->current_test_info()->name() + ".db") { clear(); }
  ~ResponseStoreTest() override { clear(); }
  void clear() const {
    for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(path_ + end);
  }
  std::unique_ptr<ResponseStore> open(ResponseStoreOptions options = {}) const {
    options.path = path_;
    Result<std::unique_ptr<ResponseStore>> store = ResponseStore::open(options);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }
  const std::string path_;
};

StoredResponse response(const std::string& id, const std::string& tenant = "", int64_t created = kNow) {
  return {.id = id, .tenant = tenant, .created_unix_s = created, .previous_id = "before", .response = "{\"id\":\"" + id + "\",\"é\":\"\\u0000\"}", .input = "[1]"};
}

Code code_of(const Result<StoredResponse>& result) { return result ? Code::kInternal : result.error().code; }

TEST_F(ResponseStoreTest, KeepsWhatItWasGivenOverARestart) {
  ASSERT_TRUE(open()->put(response("a"), kNow));
  const auto store = open();
  const Result<StoredResponse> got = store->get("a", "", kNow);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->response, response("a").response);
  EXPECT_EQ(got->input, "[1]");
  EXPECT_EQ(got->previous_id, "before");
  EXPECT_EQ(got->created_unix_s, kNow);
  EXPECT_TRUE(store->remove("a", "", kNow));
  EXPECT_EQ(code_of(store->get("a", "", kNow)), Code::kNotFound);
  const Result<> again = store->remove("a", "", kNow);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kNotFound);
}

TEST_F(ResponseStoreTest, TenantsSeeTheirOwn) {
  const auto store = open();
  ASSERT_TRUE(store->put(response("a", "one"), kNow));
  EXPECT_EQ(code_of(store->get("a", "two", kNow)), Code::kNotFound);
  EXPECT_FALSE(store->remove("a", "two", kNow));
  EXPECT_TRUE(store->get("a", "one", kNow));
}

TEST_F(ResponseStoreTest, WhatIsTooOldIsGone) {
  const auto store = open({.retention = std::chrono::seconds(100)});
  ASSERT_TRUE(store->put(response("a"), kNow));
  EXPECT_TRUE(store->get("a", "", kNow + 100));
  EXPECT_EQ(code_of(store->get("a", "", kNow + 101)), Code::kNotFound);
  ASSERT_TRUE(store->put(response("b", "", kNow + 200), kNow + 200));
  EXPECT_EQ(code_of(store->get("a", "", kNow)), Code::kNotFound) << "the row is still in the file";
}

TEST_F(ResponseStoreTest, TheOldestMakeRoom) {
  const auto store = open({.max_responses = 3});
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(store->put(response("r" + std::to_string(i), "", kNow + i), kNow + i));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(store->get("r" + std::to_string(i), "", kNow).has_value(), i >= 7) << i;
}

TEST_F(ResponseStoreTest, RefusesOtherFiles) {
  std::ofstream(path_) << "this is no database, and it is longer than a header of one would be: .......................................";
  const auto other = ResponseStore::open({.path = path_});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kCorruption);
  EXPECT_NE(other.error().message.find(path_), std::string::npos);
  const auto nowhere = ResponseStore::open({.path = path_ + "/no/such/folder"});
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, Code::kIo);
}

TEST_F(ResponseStoreTest, ThreadsTakeTurns) {
  const auto store = open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store, t] {
      for (int i = 0; i < 20; ++i) {
        const std::string id = std::to_string(t) + "-" + std::to_string(i);
        EXPECT_TRUE(store->put(response(id), kNow));
        EXPECT_TRUE(store->get(id, "", kNow));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace deepinfer::api
