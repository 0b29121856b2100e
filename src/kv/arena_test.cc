#include "kv/arena.h"

#include <gtest/gtest.h>

#include <cstring>

namespace deepinfer::kv {
namespace {

TEST(Arena, IsZeroWritableAndAlignedToPages) {
  auto arena = Arena::map(1 << 20);
  ASSERT_TRUE(arena.has_value());
  EXPECT_EQ(arena->size(), uint64_t{1} << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->data()) % 4096, 0u);
  EXPECT_EQ(arena->data()[12345], std::byte{0});
  std::memset(arena->data(), 1, arena->size());
  EXPECT_EQ(arena->data()[arena->size() - 1], std::byte{1});
}

TEST(Arena, WhatTheMachineRefusesIsAnErrorWithTheSize) {
  const auto arena = Arena::map(uint64_t{1} << 60);
  ASSERT_FALSE(arena.has_value());
  EXPECT_EQ(arena.error().code, Code::kResourceExhausted);
  EXPECT_NE(arena.error().message.find("KV arena"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer::kv
