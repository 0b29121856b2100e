#include "kv/retention.h"

#include <fmt/format.h>

#include "kv/segment_format.h"

namespace deepinfer::kv {

Result<> check_retention(std::span<const RetentionClass> classes) {
  const auto refuse = [](std::string message) { return Error{Code::kInvalidArgument, std::move(message)}; };
  if (classes.empty() || classes.size() > kMaxRetentionClasses) return refuse(fmt::format("there must be 1 to {} retention classes", kMaxRetentionClasses));
  for (const RetentionClass& c : classes) {
    if (!is_class_name(c.name)) return refuse(fmt::format("retention class '{}': a name has 1 to {} characters of a-z, 0-9, _ and -", c.name, kMaxClassName));
    if (c.seconds < 60) return refuse(fmt::format("retention class '{}': less than a minute", c.name));
  }
  return {};
}

}  // namespace deepinfer::kv
