#include "apps/chat_input.h"

#include <gtest/gtest.h>
#include <string_view>

namespace deepinfer::apps {
namespace {

using Event = ChatInput::Event;

Event type(ChatInput& input, std::string_view bytes) {
  Event last = Event::kNone;
  for (const char c : bytes) last = input.feed(static_cast<unsigned char>(c));
  return last;
}

TEST(ChatInput, TypingAndErasing) {
  ChatInput input;
  EXPECT_EQ(type(input, "one two gr\xc3\xbc\xc3\x9f"), Event::kChanged);
  EXPECT_EQ(type(input, "\x7f"), Event::kChanged);
  EXPECT_EQ(input.text(), "one two gr\xc3\xbc") << "a whole code point at a time";
  type(input, "\x17");
  EXPECT_EQ(input.text(), "one two ");
  type(input, "\x17\x17\x17\x7f");
  EXPECT_EQ(input.text(), "");
  EXPECT_EQ(type(input, "\x04"), Event::kEnd);
  EXPECT_EQ(type(input, "a\x04"), Event::kNone);
  EXPECT_EQ(type(input, "\x03"), Event::kInterrupt);
  EXPECT_EQ(type(input, "\x15"), Event::kChanged);
  EXPECT_EQ(input.text(), "");
}

TEST(ChatInput, APasteOfManyLinesIsOneEntry) {
  ChatInput input;
  EXPECT_EQ(type(input, "see: \x1b[200~line 1\rline 2\x03\x04\r\x1b[A\ttail\x1b[201~"), Event::kChanged);
  EXPECT_EQ(input.text(), "see: line 1\nline 2\n\ttail") << "nothing inside a paste is a command";
  EXPECT_EQ(type(input, "\r"), Event::kSubmit);
}

TEST(ChatInput, ArrowsRecallEarlierEntries) {
  ChatInput input;
  for (const char* text : {"first", "second"}) {
    EXPECT_EQ(type(input, text), Event::kChanged);
    EXPECT_EQ(type(input, "\n"), Event::kSubmit);
    input.clear(true);
  }
  EXPECT_EQ(type(input, "\x1b[B"), Event::kNone);
  type(input, "\x1b[A");
  EXPECT_EQ(input.text(), "second");
  type(input, "\x1bOA");
  EXPECT_EQ(input.text(), "first");
  EXPECT_EQ(type(input, "\x1b[A"), Event::kNone);
  type(input, "\x1b[B\x1b[B");
  EXPECT_EQ(input.text(), "");
}

TEST(ChatInput, UnknownEscapesLeaveNothingBehind) {
  ChatInput input;
  type(input, "a\x1b[1;5Cb\x1b[3~c\x1bOHd");
  EXPECT_EQ(input.text(), "abcd");
  type(input, "\x1b[0123456789012345");  // no final byte: given up after a bound
  type(input, "e");
  EXPECT_EQ(input.text().substr(0, 4), "abcd");
  EXPECT_EQ(input.text().back(), 'e');
}

TEST(ChatInput, APasteIsBounded) {
  ChatInput input;
  type(input, "\x1b[200~");
  for (size_t i = 0; i < ChatInput::kMaxBytes + 100; ++i) input.feed('x');
  type(input, "\x1b[201~");
  EXPECT_EQ(input.text().size(), ChatInput::kMaxBytes);
}

}  // namespace
}  // namespace deepinfer::apps
