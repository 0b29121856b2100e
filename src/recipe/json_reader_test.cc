#include "recipe/json_reader.h"

#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>

namespace deepinfer::recipe {
namespace {

namespace json = boost::json;

std::string reread(std::string body) {
  const Result<json::object> object = read_json_object(std::move(body));
  return object ? json::serialize(*object) : "error: " + object.error().message;
}

TEST(JsonReader, KeepsValuesAndKeyOrder) {
  EXPECT_EQ(reread(R"( {"z":1,"a":[true,false,null,-5,18446744073709551615,"x\n"],"m":{}} )"),
            R"({"z":1,"a":[true,false,null,-5,18446744073709551615,"x\n"],"m":{}})");
}

// What is made of a body (a schema in a constraint, a response that is kept) is read again at whatever depth it has.
TEST(JsonReader, OwnTextsAreAsDeepAsBodies) {
  const std::string deep = std::string(kMaxJsonDepth, '[') + "0.5" + std::string(kMaxJsonDepth, ']');
  const std::optional<json::value> read = parse_json(R"({"schemas":[)" + deep + "]}");
  ASSERT_TRUE(read);
  const json::value* value = &read->at("schemas").at(0);
  while (value->is_array()) value = &value->get_array()[0];
  EXPECT_EQ(value->as_double(), 0.5);
  EXPECT_FALSE(parse_json(std::string(100000, '[')));
  EXPECT_FALSE(parse_json("{} {}"));
}

TEST(JsonReader, IntegersBeyond64BitsAreDoubles) {
  EXPECT_EQ(reread(R"({"a":18446744073709551616})"), R"({"a":1.8446744073709552E19})");
  EXPECT_EQ(reread(R"({"a":[-9223372036854775809,-9223372036854775808,123456789012345678901234567890,5]})"),
            R"({"a":[-9.223372036854776E18,-9223372036854775808,1.2345678901234568E29,5]})");
  EXPECT_EQ(reread(R"({"123456789012345678901":"12345678901234567890123 \" 12345678901234567890123","b":[12345678901234567890123]})"),
            R"({"123456789012345678901":"12345678901234567890123 \" 12345678901234567890123","b":[1.2345678901234568E22]})");
  EXPECT_EQ(reread("{\"a\":1" + std::string(400, '0') + "}"), "error: the body is not valid JSON: a number is malformed, or beyond a double");
  EXPECT_EQ(reread(R"({"a":1e400})"), "error: the body is not valid JSON: a number is malformed, or beyond a double");
  EXPECT_EQ(reread(R"({"a":012345678901234567890})").substr(0, 5), "error");
  EXPECT_EQ(reread(R"({"a":--2345678901234567890})").substr(0, 5), "error");
}

TEST(JsonReader, AKeyTwiceInOneObjectIsRefused) {
  EXPECT_EQ(reread(R"({"a":1,"b":2,"a":1})"), "error: the key \"a\" appears twice in one object");
  EXPECT_EQ(reread(R"({"x":[{"y":{"b":null,"\u0062":1}}]})"), "error: the key \"b\" appears twice in one object");
  EXPECT_EQ(reread(R"({"\ud800":1,"\udfff":2})"), "error: the key \"\uFFFD\" appears twice in one object");
  EXPECT_EQ(reread(R"({"a":{"a":{"a":1}},"b":{"a":2}})"), R"({"a":{"a":{"a":1}},"b":{"a":2}})");
}

TEST(JsonReader, LoneSurrogatesBecomeReplacementCharacters) {
  EXPECT_EQ(reread(R"({"a":"\ud83d\ude00"})"), "{\"a\":\"\U0001F600\"}");
  EXPECT_EQ(reread(R"({"a":"x\ud83d"})"), "{\"a\":\"x\uFFFD\"}");
  EXPECT_EQ(reread(R"({"a":"\ude00y"})"), "{\"a\":\"\uFFFDy\"}");
  EXPECT_EQ(reread(R"({"a":"\uD83D\uD83D\uDE00"})"), "{\"a\":\"\uFFFD\U0001F600\"}");
  EXPECT_EQ(reread(R"({"a":"\ud83d\n"})"), "{\"a\":\"\uFFFD\\n\"}");
  EXPECT_EQ(reread(R"({"\ud800":1})"), "{\"\uFFFD\":1}");
  EXPECT_EQ(reread(R"({"a":"\\ud800"})"), R"({"a":"\\ud800"})") << "an escaped backslash is no escape";
  EXPECT_EQ(reread(R"({"a":"\\\ud800"})"), "{\"a\":\"\\\\\uFFFD\"}");
}

TEST(JsonReader, RefusesWithAReason) {
  EXPECT_EQ(reread(""), "error: the body is not valid JSON: it is empty");
  EXPECT_EQ(reread("[]"), "error: the body must be a JSON object");
  EXPECT_EQ(reread("1"), "error: the body must be a JSON object");
  EXPECT_EQ(reread("{\"a\":\"\xff\"}"), "error: the body is not valid JSON: it is not valid UTF-8");
  EXPECT_EQ(reread("{\"a\":\"x"), "error: the body is not valid JSON: a string is not closed");
  EXPECT_EQ(reread("{\"a\":\"x\ny\"}"), "error: the body is not valid JSON: a string holds a control character that must be escaped");
  EXPECT_EQ(reread(R"({"a":"\q"})"), "error: the body is not valid JSON: a string holds a bad escape");
  EXPECT_EQ(reread(R"({"a":"\u12"})"), "error: the body is not valid JSON: a string holds a bad escape");
  EXPECT_EQ(reread(R"({"a":01})"), "error: the body is not valid JSON: a number is malformed, or beyond a double");
  EXPECT_EQ(reread(R"({"a":1}})").substr(0, 5), "error");
  EXPECT_EQ(reread(R"({"a":1,})").substr(0, 5), "error");
  EXPECT_EQ(reread(R"({"a":NaN})").substr(0, 5), "error");
  EXPECT_EQ(reread(R"({"a")").substr(0, 5), "error");
  EXPECT_EQ(reread("\\").substr(0, 5), "error");
}

TEST(JsonReader, DepthIsBounded) {
  const auto nested = [](size_t depth) {
    return R"({"a":)" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_EQ(reread(nested(250)).substr(0, 5), "{\"a\":");
  EXPECT_EQ(reread(nested(300)), "error: the body is nested deeper than 256 levels");
  EXPECT_EQ(reread(nested(1000000)), "error: the body is nested deeper than 256 levels");
}

}  // namespace
}  // namespace deepinfer::recipe
