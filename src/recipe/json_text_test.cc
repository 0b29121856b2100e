#include "recipe/json_text.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace deepinfer::recipe {
namespace {

std::string python(std::string_view json) { return format_json(json, NumberStyle::kPython).value_or("refused"); }
std::string compact(std::string_view json) { return format_json(json, NumberStyle::kCompact).value_or("refused"); }

TEST(JsonText, WritesLikePython) {
  EXPECT_EQ(python(R"( {"b":[1,2,{}],"a" : {"x":null,"y":[ ]} ,"c":true} )"), R"({"b": [1, 2, {}], "a": {"x": null, "y": []}, "c": true})");
  EXPECT_EQ(python(R"("a\/b\u00e9\n\u0001\u007f\"\\")"), "\"a/bé\\n\\u0001\x7f\\\"\\\\\"");
  EXPECT_EQ(python(R"("\ud83d\ude00 \ud83d x \ude00 \ud83d\u0041")"), "\"😀 \xef\xbf\xbd x \xef\xbf\xbd \xef\xbf\xbd" "A\"");
  EXPECT_EQ(python(R"({"k":1,"z":2,"k":3})"), R"({"k": 3, "z": 2})");
}

TEST(JsonText, WritesNumbersLikePython) {
  const std::pair<const char*, const char*> cases[] = {
      {"0", "0"}, {"-0", "0"}, {"-0.0", "-0.0"}, {"1.0", "1.0"}, {"1.50", "1.5"}, {"100", "100"}, {"1e2", "100.0"}, {"1E+15", "1000000000000000.0"},
      {"1e16", "1e+16"}, {"123456789012345678.0", "1.2345678901234568e+17"}, {"0.0001", "0.0001"}, {"0.00001", "1e-05"}, {"1e-7", "1e-07"},
      {"1.5e300", "1.5e+300"}, {"123456789012345678901234567890", "123456789012345678901234567890"}, {"1e999", "1e999"}, {"-1e999", "-1e999"},
      {"1e-999", "0.0"}, {"0.1", "0.1"}, {"3.141592653589793", "3.141592653589793"}, {"5e-324", "5e-324"}, {"12.5", "12.5"}};
  for (const auto& [in, out] : cases) EXPECT_EQ(python(in), out) << in;
  EXPECT_EQ(compact("0.00001"), "0.00001");
  EXPECT_EQ(compact("1e-6"), "1e-6");
  EXPECT_EQ(compact("1e16"), "1e+16");
}

TEST(JsonText, RefusesWhatIsNoJson) {
  for (const char* bad : {"", " ", "{", "[1,]", "{\"a\"}", "{\"a\":1,}", "01", "1.", ".5", "+1", "1e", "-", "tru", "nul", "\"a", "\"\\x\"", "\"\\u12\"", "\"\n\"",
                          "1 2", "{} x", "[1 2]", "NaN", "Infinity", "'a'"}) {
    EXPECT_EQ(python(bad), "refused") << bad;
  }
  EXPECT_NE(python(std::string(256, '[') + std::string(256, ']')), "refused");
  EXPECT_EQ(python(std::string(257, '[') + std::string(257, ']')), "refused");
}

TEST(JsonText, GivesMembers) {
  const auto members = json_members(R"({"s":"a\nb","n":1e-7,"o":{"x":[1]},"s":"c"})", NumberStyle::kPython);
  ASSERT_TRUE(members);
  ASSERT_EQ(members->size(), 3u);
  EXPECT_EQ((*members)[0].key, "s");
  EXPECT_TRUE((*members)[0].is_string);
  EXPECT_EQ((*members)[0].text, "c");
  EXPECT_EQ((*members)[1].text, "1e-07");
  EXPECT_FALSE((*members)[2].is_string);
  EXPECT_EQ((*members)[2].text, R"({"x": [1]})");
  for (const char* other : {"[1]", "\"a\"", "1", "{", "{}x", ""}) EXPECT_FALSE(json_members(other, NumberStyle::kPython)) << other;
}

TEST(JsonText, FormatsValues) {
  EXPECT_EQ(format_json(boost::json::parse(R"({"minimum":0.5,"maximum":100,"x":1.0,"y":1e-7})"), NumberStyle::kPython),
            R"({"minimum": 0.5, "maximum": 100, "x": 1.0, "y": 1e-07})");
}

}  // namespace
}  // namespace deepinfer::recipe
