// Requests of all protocols to prompts: segments and ids as the reference encoders give them.
#include <gtest/gtest.h>

#include "recipe/dialect.h"
#include "recipe/encode_request.h"
#include "recipe_golden.h"

namespace deepinfer::recipe {
namespace {

namespace json = boost::json;
using testing::decimal;
using testing::sha256;

std::string_view text_of(const json::value& value) { return value.as_string(); }

struct Vocabularies {
  std::unique_ptr<tokenizer::Tokenizer> nano = testing::nano_tokenizer(), deepseek = testing::deepseek_tokenizer();
};
const Vocabularies& vocabularies() {
  static const Vocabularies all;
  return all;
}

DialectOptions options_of(const json::object& test) {
  DialectOptions out;
  const json::value* options = test.if_contains("options");
  if (options == nullptr) return out;
  const json::object& object = options->as_object();
  if (const json::value* history = object.if_contains("history_reasoning")) {
    out.history_reasoning = text_of(*history) == "keep" ? HistoryReasoning::kKeep : HistoryReasoning::kReference;
  }
  if (const json::value* developer = object.if_contains("developer_as")) {
    out.developer_as = text_of(*developer) == "user" ? DeveloperAs::kUser : DeveloperAs::kSystem;
  }
  return out;
}

std::optional<ParsedRequest> parse(const json::object& test, Problems& problems) {
  const json::value* name = test.if_contains("protocol");
  const std::string_view protocol = name != nullptr ? text_of(*name) : "chat";
  RequestContext context;
  context.options.vocab_size = vocabularies().nano->vocab_size();
  context.options.dialect = *dialect_of_name(text_of(test.at("dialect")));
  context.options.accepts_images = true;
  const json::value* options = test.if_contains("options");
  context.options.enable_tasks = options != nullptr && options->as_object().contains("enable_tasks");
  const Protocol which = protocol == "responses"   ? Protocol::kResponses
                         : protocol == "messages"  ? Protocol::kMessages
                         : protocol == "completions" ? Protocol::kCompletions
                                                     : Protocol::kChat;
  return parse_request(which, test.at("request").as_object(), context, problems);
}

Result<EncodedRequest> encode(const json::object& test, const tokenizer::Tokenizer& tokenizer) {
  Problems problems;
  const std::optional<ParsedRequest> request = parse(test, problems);
  if (!request) return Error{Code::kInvalidArgument, problems.first().message};
  DI_TRY(const auto renderer, make_dialect_renderer(*dialect_of_name(text_of(test.at("dialect"))), tokenizer, options_of(test)));
  return encode_request(*request, {.tokenizer = tokenizer, .renderer = renderer.get()});
}

json::array segments_json(const Prompt& prompt) {
  json::array out;
  for (const Segment& segment : prompt.segments) {
    switch (segment.kind) {
      case Segment::Kind::kSpecial: out.push_back(json::object{{"special", segment.text}}); break;
      case Segment::Kind::kPlain: out.push_back(json::object{{"text", segment.text}}); break;
      case Segment::Kind::kImage: out.push_back(json::object{{"image", segment.image}}); break;
    }
  }
  return out;
}

std::string_view detail_name(ImageDetail detail) {
  switch (detail) {
    case ImageDetail::kHigh: return "high";
    case ImageDetail::kLow: return "low";
    case ImageDetail::kOriginal: return "original";
    case ImageDetail::kAuto: return "auto";
  }
  return {};
}

json::array images_json(const Prompt& prompt) {
  json::array out;
  for (const Image& image : prompt.images) out.push_back(json::object{{"url", image.url}, {"detail", detail_name(image.detail)}});
  return out;
}

void expect_ids(const json::object& expected, const std::vector<TokenId>& ids) {
  EXPECT_EQ(static_cast<int64_t>(ids.size()), expected.at("n").to_number<int64_t>());
  EXPECT_EQ(sha256(decimal(ids)), text_of(expected.at("sha256")));
}

TEST(RecipeEncoding, GivesTheSegmentsAndIdsOfTheReference) {
  const json::value golden = testing::read_golden("encoding.json");
  for (const json::value& value : golden.at("cases").as_array()) {
    const json::object& test = value.as_object();
    SCOPED_TRACE(std::string(text_of(test.at("name"))) + " " + std::string(text_of(test.at("dialect"))));
    const auto encoded = encode(test, *vocabularies().nano);
    if (!encoded) {
      ADD_FAILURE() << encoded.error().message;
      continue;
    }
    const Prompt& prompt = encoded->prompt;
    EXPECT_EQ(json::serialize(segments_json(prompt)), json::serialize(test.at("segments")));
    if (const json::value* start = test.if_contains("start")) {
      EXPECT_EQ(name_of(prompt.syntax.start), text_of(*start));
    }
    const json::value* images = test.if_contains("images");
    EXPECT_EQ(json::serialize(images_json(prompt)), images != nullptr ? json::serialize(*images) : "[]");
    EXPECT_EQ(sha256(prompt_text(prompt)), text_of(test.at("text").at("sha256")));
    const json::object& ids = test.at("ids").as_object();
    expect_ids(ids.at("nano").as_object(), encoded->ids);
    const json::value* deepseek = ids.if_contains("deepseek");
    if (deepseek == nullptr || vocabularies().deepseek == nullptr) continue;
    const auto again = encode(test, *vocabularies().deepseek);
    ASSERT_TRUE(again) << again.error().message;
    expect_ids(deepseek->as_object(), again->ids);
  }
}

TEST(RecipeEncoding, RefusesWhatTheReferenceRefuses) {
  const json::value golden = testing::read_golden("encoding.json");
  for (const json::value& test : golden.at("error_cases").as_array()) {
    Problems problems;
    EXPECT_FALSE(parse(test.as_object(), problems)) << text_of(test.at("name"));
  }
}

// Segments as the digests of encoding_random.json cover them.
std::string canonical(const Prompt& prompt) {
  std::string out;
  const auto add = [&](char kind, std::string_view text) { out.append(1, kind).append(std::to_string(text.size())).append(":").append(text); };
  for (const Segment& segment : prompt.segments) {
    switch (segment.kind) {
      case Segment::Kind::kSpecial: add('S', segment.text); break;
      case Segment::Kind::kPlain: add('T', segment.text); break;
      case Segment::Kind::kImage: out.append("I").append(std::to_string(segment.image)).append(";"); break;
    }
  }
  return out;
}

TEST(RecipeEncoding, GivesTheSegmentsOfRandomRequests) {
  const json::value golden = testing::read_golden("encoding_random.json");
  for (const json::value& value : golden.at("cases").as_array()) {
    const json::object& test = value.as_object();
    SCOPED_TRACE(json::serialize(test.at("request")));
    const auto encoded = encode(test, *vocabularies().nano);
    if (!encoded) {
      ADD_FAILURE() << encoded.error().message;
      continue;
    }
    EXPECT_EQ(sha256(canonical(encoded->prompt)), text_of(test.at("sha256"))) << canonical(encoded->prompt);
    EXPECT_EQ(sha256(decimal(encoded->ids)), text_of(test.at("nano_sha256")));
  }
}

}  // namespace
}  // namespace deepinfer::recipe
