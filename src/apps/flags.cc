#include "apps/flags.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/units.h"

namespace deepinfer::apps {
namespace {

// The whole of `text` as a T, or nothing.
template <class T>
std::optional<T> parse_whole(const std::string& text) {
  T value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A name for messages: the flag's long one. CLI11 puts it in front of what a ValidationError says.
std::string flag_name(const std::string& names) { return names.substr(names.rfind(',') + 1); }

CLI::Option* finish(CLI::Option* option, const std::string& value_name, const std::string& fallback) {
  option->type_name(value_name)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  if (!fallback.empty()) option->default_str(fallback);
  return option;
}

}  // namespace

CLI::Option* Flags::text(const std::string& names, std::string& out, const std::string& value_name, const std::string& help, const std::string& fallback) {
  const std::string shown = fallback.empty() ? out : fallback;
  return finish(app_->add_option_function<std::string>(names, [&out](const std::string& text) { out = text; }, help), value_name, shown);
}

CLI::Option* Flags::list(const std::string& names, std::vector<std::string>& out, const std::string& value_name, const std::string& help) {
  CLI::Option* option = app_->add_option(names, out, help)->type_name(value_name)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  // Else the model behind a flag would be its second value.
  return names.front() == '-' ? option->expected(-1)->allow_extra_args(false) : option->expected(1, 64);
}

CLI::Option* Flags::number(const std::string& names, int32_t& out, int32_t min, int32_t max, const std::string& value_name, const std::string& help,
                   const std::string& fallback) {
  const auto parse = [&out, min, max, name = flag_name(names)](const std::string& text) {
    const std::optional<int32_t> value = parse_whole<int32_t>(text);
    if (!value || *value < min || *value > max)
      throw CLI::ValidationError(name, fmt::format("'{}' is not a whole number from {} to {}", text, min, max));
    out = *value;
  };
  return finish(app_->add_option_function<std::string>(names, parse, help), value_name, fallback.empty() ? std::to_string(out) : fallback);
}

CLI::Option* Flags::real(const std::string& names, float& out, float min, float max, const std::string& help) {
  const auto parse = [&out, min, max, name = flag_name(names)](const std::string& text) {
    const std::optional<float> value = parse_whole<float>(text);
    if (!value || !(*value >= min && *value <= max))
      throw CLI::ValidationError(name, fmt::format("'{}' is not a number from {} to {}", text, min, max));
    out = *value;
  };
  return finish(app_->add_option_function<std::string>(names, parse, help), "X", fmt::format("{}", out));
}

CLI::Option* Flags::seed(const std::string& names, std::optional<uint64_t>& out, const std::string& help, const std::string& fallback) {
  const auto parse = [&out, name = flag_name(names)](const std::string& text) {
    out = parse_whole<uint64_t>(text);
    if (!out) throw CLI::ValidationError(name, fmt::format("'{}' is not a whole number", text));
  };
  return finish(app_->add_option_function<std::string>(names, parse, help), "N", fallback);
}

CLI::Option* Flags::size(const std::string& names, std::optional<uint64_t>& out, const std::string& help, const std::string& fallback) {
  const auto parse = [&out, name = flag_name(names)](const std::string& text) {
    Result<uint64_t> bytes = parse_size(text);
    if (!bytes) throw CLI::ValidationError(name, bytes.error().message);
    out = *bytes;
  };
  return finish(app_->add_option_function<std::string>(names, parse, help), "SIZE", fallback);
}

CLI::Option* Flags::duration(const std::string& names, int64_t& out_ns, const std::string& help, const std::string& fallback) {
  const auto parse = [&out_ns, name = flag_name(names)](const std::string& text) {
    Result<int64_t> ns = parse_duration(text);
    if (!ns) throw CLI::ValidationError(name, ns.error().message);
    out_ns = *ns;
  };
  return finish(app_->add_option_function<std::string>(names, parse, help), "TIME", fallback);
}

CLI::Option* Flags::choice(const std::string& names, std::string& out, const std::vector<std::string>& choices, const std::string& help) {
  const auto parse = [&out, choices, name = flag_name(names)](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end())
      throw CLI::ValidationError(name, fmt::format("'{}' is not one of {}", text, fmt::join(choices, ", ")));
    out = text;
  };
  return finish(app_->add_option_function<std::string>(names, parse, help), fmt::format("{}", fmt::join(choices, "|")), out);
}

CLI::Option* Flags::toggle(const std::string& names, bool& out, const std::string& help) {
  return app_->add_flag(names, out, help)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

}  // namespace deepinfer::apps
