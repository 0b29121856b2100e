#include "recipe/encode_request.h"

#include <gtest/gtest.h>

#include "recipe/fake_tokenizer.h"

namespace deepinfer::recipe {
namespace {

// A renderer that puts one picture after each message, as id 7.
class PictureBook final : public PromptRenderer {
 public:
  Result<Prompt> render(const Conversation& conversation) const override {
    Prompt out;
    for (size_t i = 0; i < conversation.messages.size(); ++i) {
      out.segments.push_back({.text = conversation.messages[i].content});
      out.segments.push_back({.kind = Segment::Kind::kImage, .id = 7, .text = "<image>", .image = static_cast<uint32_t>(i)});
      out.images.push_back(conversation.images[i]);
    }
    return out;
  }
};

TEST(EncodeRequest, PlaceholdersBecomeAsLongAsTheirPictures) {
  const FakeTokenizer tokenizer({{7, "<image>", true}});
  const PictureBook renderer;
  Conversation conversation;
  for (const char* text : {"a", "<image>", ""}) {
    conversation.messages.push_back({.content = text});
    conversation.images.push_back({.url = std::string("picture of ") + text});
  }
  std::vector<std::string> read;
  EncodeContext context{.tokenizer = tokenizer, .renderer = &renderer};
  EXPECT_EQ(encode_request({.prompt = conversation}, context)->ids.size(), 1u + 7u + 3u) << "nobody reads pictures: one position each";
  context.read_image = [&](const Image& image) -> Result<std::shared_ptr<const InputImage>> {
    read.push_back(image.url);
    auto out = std::make_shared<InputImage>();
    out->num_tokens = static_cast<int32_t>(read.size()) * 2;
    return std::shared_ptr<const InputImage>(std::move(out));
  };
  const EncodedRequest encoded = encode_request({.prompt = conversation}, context).value();
  EXPECT_EQ(read, (std::vector<std::string>{"picture of a", "picture of <image>", "picture of "}));
  std::vector<TokenId> expected;
  const auto add_text = [&](std::string_view text) { tokenizer.encode(text, tokenizer::Recognize::kNothing, expected); };
  const auto add_image = [&](size_t count) { expected.insert(expected.end(), count, 7); };
  add_text("a");
  add_image(2);
  add_text("<image>");  // typed: seven bytes
  add_image(4);
  add_image(6);
  EXPECT_EQ(encoded.ids, expected);
  ASSERT_EQ(encoded.images.size(), 3u);
  EXPECT_EQ(encoded.images[0].start, 1);
  EXPECT_EQ(encoded.images[1].start, 1 + 2 + 7);
  EXPECT_EQ(encoded.images[2].start, 1 + 2 + 7 + 4);
  EXPECT_EQ(encoded.images[2].image->num_tokens, 6);

  context.read_image = [](const Image&) -> Result<std::shared_ptr<const InputImage>> { return Error{Code::kCorruption, "torn"}; };
  EXPECT_EQ(encode_request({.prompt = conversation}, context).error().message, "torn");
}

TEST(EncodeRequest, WhoNamesControlTokensIsShownThem) {
  const FakeTokenizer tokenizer({{7, "<think>", false}});
  const EncodeContext context{.tokenizer = tokenizer, .hides_added_tokens = true};
  const auto hides = [&](TextPrompt prompt) { return encode_request({.prompt = std::move(prompt)}, context)->prompt.syntax.hides_added_tokens; };
  EXPECT_TRUE(hides({.text = "a"}));
  EXPECT_FALSE(hides({.text = "a", .parse_special = true}));
  EXPECT_FALSE(hides({.text = std::vector<TokenId>{7}}));
}

}  // namespace
}  // namespace deepinfer::recipe
