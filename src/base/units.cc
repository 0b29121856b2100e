#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

namespace deepinfer {
namespace {

struct Suffix {
  std::string_view name;
  double factor;
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// number * factor of the suffix, or nothing. `limit` keeps the result exact in the integer that the caller wants.
template <size_t N>
Result<double> parse_scaled(std::string_view text, const std::array<Suffix, N>& suffixes, std::string_view what) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const std::string suffix = lower(std::string_view(end, static_cast<size_t>(text.data() + text.size() - end)));
  if (status == std::errc() && std::isfinite(number) && number >= 0)
    for (const Suffix& s : suffixes)
      if (suffix == s.name && number * s.factor < 0x1p62) return number * s.factor;
  return Error{Code::kInvalidArgument, fmt::format("'{}' is not {}", text, what)};
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  static constexpr std::array<Suffix, 14> kSuffixes{{{"", 1}, {"b", 1}, {"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12},
                                                     {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"tib", 0x1p40},
                                                     {"k", 0x1p10}, {"m", 0x1p20}, {"g", 0x1p30}, {"t", 0x1p40}}};
  DI_TRY(const double bytes, parse_scaled(text, kSuffixes, "a size (examples: 4096, 512MiB, 8GiB)"));
  return static_cast<uint64_t>(bytes);
}

Result<int64_t> parse_duration(std::string_view text) {
  static constexpr std::array<Suffix, 8> kSuffixes{
      {{"", 1e9}, {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}, {"d", 86400e9}}};
  DI_TRY(const double ns, parse_scaled(text, kSuffixes, "a time (examples: 250ms, 30s, 72h)"));
  return static_cast<int64_t>(ns);
}

std::string format_size(uint64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value >= 100 ? 0 : value >= 10 ? 1 : 2, kUnits[unit]);
}

}  // namespace deepinfer
