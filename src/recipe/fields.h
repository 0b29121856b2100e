// Typed reading of a client's JSON object. Sticky: the first wrong field is remembered with its path, and everything read after it
// looks absent, so that a parser is straight-line code with one check at its end. null is the same as absent; unknown fields are
// nobody's business. Lost: a schema per protocol, which says the same in a second language and words its errors for nobody.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer::recipe {

// What is wrong with a request, for the error envelope.
struct FieldProblem {
  std::string message;
  std::string param;  // path of the field, "messages[2].content"; empty when the request as a whole is meant
};

// The first problem of a request, shared by the readers of its nested objects.
class Problems {
 public:
  bool any() const { return first_.has_value(); }
  void report(std::string param, std::string message) {
    if (!first_) first_ = FieldProblem{std::move(message), std::move(param)};
  }
  const FieldProblem& first() const { return *first_; }

 private:
  std::optional<FieldProblem> first_;
};

struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_excluded = false;
};

class FieldReader {
 public:
  FieldReader(const boost::json::object& object, std::string path, Problems& problems)
      : object_(object), path_(std::move(path)), problems_(problems) {}

  // Absent, null, or a problem reported now or before: nullopt / nullptr.
  std::optional<bool> boolean(std::string_view key);
  // Whole numbers; 3.0 counts as 3, as JSON has only one kind of number.
  std::optional<int64_t> integer(std::string_view key, int64_t min, int64_t max);
  std::optional<double> number(std::string_view key, NumberRange range);
  const boost::json::string* string(std::string_view key);
  const boost::json::array* array(std::string_view key);
  const boost::json::object* object(std::string_view key);
  const boost::json::value* value(std::string_view key);  // any type but null
  // One of `choices`, given back as a view of the choice.
  std::string_view choice(std::string_view key, std::span<const std::string_view> choices);
  std::string_view choice(std::string_view key, std::initializer_list<std::string_view> choices) {
    return choice(key, std::span(choices.begin(), choices.size()));
  }

  bool failed() const { return problems_.any(); }
  Problems& problems() { return problems_; }
  std::string path_of(std::string_view key) const;
  void fail(std::string_view key, std::string message) { problems_.report(path_of(key), std::move(message)); }

 private:
  void wrong_type(std::string_view key, std::string_view expected);

  const boost::json::object& object_;
  std::string path_;
  Problems& problems_;
};

// A client's text for a message to a person: at most max_bytes of it, cut between code points; bytes that are no UTF-8 become U+FFFD.
std::string quotable(std::string_view text, size_t max_bytes = 64);

// A number as a whole one, if it is that exactly.
std::optional<int64_t> exact_integer(const boost::json::value& value);
// The numeric value of any JSON number.
std::optional<double> as_double(const boost::json::value& value);

}  // namespace deepinfer::recipe
