// Result<T>: a value or an Error, for everything that the world can get wrong (files, peers, clients, models).
// Names follow std::expected, which g++ 12 has in C++23 only. Our own mistakes are CHECK's business (check.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace deepinfer {

// Few on purpose: a code says what the caller can do, the message says what happened.
enum class Code : uint8_t {
  kInvalidArgument,    // the caller asked for something that can never work
  kNotFound,           // what was named does not exist
  kCorruption,         // bytes that break their format
  kUnsupported,        // well formed, but not something we can do
  kResourceExhausted,  // a bound was reached; later may work
  kUnavailable,        // stopping, or a peer is gone
  kCancelled,
  kDeadlineExceeded,
  kIo,        // the operating system said no
  kInternal,  // a fault of ours that was contained
};

std::string_view code_name(Code code);

struct Error {
  Code code;
  std::string message;  // one sentence without a final full stop; names the file, field or tensor
};

template <class T = void>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & {
    CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    CHECK(has_value());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Error& error() & {
    CHECK(!has_value());
    return *std::get_if<1>(&state_);
  }
  const Error& error() const& {
    CHECK(!has_value());
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    CHECK(!has_value());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return !error_; }
  explicit operator bool() const { return has_value(); }
  void value() const { CHECK(has_value()); }

  Error& error() & {
    CHECK(error_.has_value());
    return *error_;
  }
  const Error& error() const& {
    CHECK(error_.has_value());
    return *error_;
  }
  Error&& error() && {
    CHECK(error_.has_value());
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace deepinfer

// DI_TRY(auto x, f());   x is the value of f(), or this function returns f()'s error.
// DI_TRY(f());           the same for a Result<>.
#define DI_TRY(...) DI_TRY_PICK(__VA_ARGS__, DI_TRY_VALUE, DI_TRY_VOID)(__VA_ARGS__)
#define DI_TRY_PICK(a, b, name, ...) name
#define DI_TRY_VALUE(lhs, expr) DI_TRY_VALUE_(DI_TRY_CAT(di_try_, __LINE__), lhs, expr)
#define DI_TRY_VALUE_(tmp, lhs, expr)           \
  auto tmp = (expr);                            \
  if (!tmp) return ::std::move(tmp).error();    \
  lhs = ::std::move(tmp).value()
#define DI_TRY_VOID(expr) \
  if (auto di_try_result = (expr); !di_try_result) return ::std::move(di_try_result).error()
#define DI_TRY_CAT(a, b) DI_TRY_CAT_(a, b)
#define DI_TRY_CAT_(a, b) a##b
