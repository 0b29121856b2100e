// Reading foreign JSON without complaint: a field that is absent, null or of another type is simply not there. simdjson's DOM, so
// that a line is parsed once and looked into in any order.
#pragma once

#include <simdjson.h>

#include <boost/json/value.hpp>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace deepinfer::trace {

using Json = simdjson::dom::element;
using MaybeJson = std::optional<Json>;

// The member of an object; of a path, "a.b.c", the members one after the other. null counts as absent.
MaybeJson member(const MaybeJson& object, std::string_view key);
MaybeJson member_at(const MaybeJson& object, std::string_view path);
// The first of several that is there.
MaybeJson first_member(const MaybeJson& object, std::initializer_list<std::string_view> paths);

bool is_object(const MaybeJson& value);
bool is_array(const MaybeJson& value);
std::string_view text_of(const MaybeJson& value);                // "" if not a string
std::string name_of(const MaybeJson& value);                     // a text, or a number or boolean as one; "" if neither
std::optional<int64_t> integer_of(const MaybeJson& value);       // numbers, and strings that are one
std::optional<int64_t> time_us_of(const MaybeJson& value);       // see parse_time_us

// Microseconds since 1970 of an ISO 8601 time ("2026-11-30T10:00:00.5Z", a space for the T, an offset; none is UTC), of nginx's
// "30/Nov/2026:10:00:00 +0000", or of a number, whose size tells seconds, milliseconds, microseconds and nanoseconds apart.
std::optional<int64_t> parse_time_us(std::string_view text);

// From 2000 to 2100: a clock, not a duration or a count.
constexpr int64_t kFirstClockUs = 946'684'800'000'000;
constexpr bool is_clock_us(int64_t us) { return us >= kFirstClockUs && us <= 4'102'444'800'000'000; }
// What a trace that counts from its own beginning may say.
constexpr bool is_before_clocks_us(int64_t us) { return us >= 0 && us < kFirstClockUs; }

std::string json_text(const Json& value);       // compact, members in their order
boost::json::value to_boost(const Json& value, boost::json::storage_ptr memory = {});

}  // namespace deepinfer::trace
