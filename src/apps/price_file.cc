#include "apps/price_file.h"

#include <fmt/format.h>
#include <set>
#include <toml++/toml.h>

#include "base/units.h"
#include "generated/prices.h"
#include "io/mapped_file.h"

namespace deepinfer::apps {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

// One table of the file. Keys that are not known are an error: a misspelt price must not be the default.
class Entry {
 public:
  Entry(const toml::table& table, std::string where) : table_(table), where_(std::move(where)) {}

  std::string text(const char* key, bool required) {
    known_.insert(key);
    if (const auto value = table_[key].value<std::string>()) return *value;
    if (required || table_.contains(key)) fail(fmt::format("{} must be a text", key));
    return "";
  }
  double price(const char* key, std::optional<double> otherwise) {
    known_.insert(key);
    const auto value = table_[key].value<double>();
    if (value && *value >= 0) return *value;
    if (!otherwise || table_.contains(key)) fail(fmt::format("{} must be a number of dollars, 0 or more", key));
    return otherwise.value_or(0);
  }
  int64_t whole(const char* key, int64_t otherwise) {
    known_.insert(key);
    const auto value = table_[key].value<int64_t>();
    if (value && *value >= 0) return *value;
    if (table_.contains(key)) fail(fmt::format("{} must be a whole number, 0 or more", key));
    return otherwise;
  }
  bool truth(const char* key) {
    known_.insert(key);
    return table_[key].value<bool>().value_or(false);
  }
  std::vector<std::string> texts(const char* key) {
    known_.insert(key);
    std::vector<std::string> out;
    const toml::array* list = table_[key].as_array();
    if (list == nullptr) {
      fail(fmt::format("{} must be a list of texts", key));
      return out;
    }
    for (const toml::node& node : *list) out.push_back(node.value<std::string>().value_or(""));
    return out;
  }
  void fail(std::string what) {
    if (problem_.empty()) problem_ = where_ + ": " + std::move(what);
  }
  Result<> done() {
    for (const auto& [key, node] : table_) {
      if (!known_.contains(std::string(key.str()))) fail(fmt::format("{} is not a key of such an entry", std::string_view(key.str())));
    }
    if (problem_.empty()) return {};
    return Error{Code::kInvalidArgument, problem_};
  }

 private:
  const toml::table& table_;
  std::string where_, problem_;
  std::set<std::string> known_;
};

Result<trace::PriceEntry> read_price(const toml::table& table, const std::string& where) {
  Entry entry(table, where);
  trace::PriceEntry out;
  out.name = entry.text("name", true);
  out.models = entry.texts("models");
  out.input = entry.price("input", std::nullopt);
  out.cached = entry.price("cached", out.input);
  out.written = entry.price("written", out.input);
  out.written_1h = entry.price("written_1h", out.written);
  out.output = entry.price("output", std::nullopt);
  out.cache_rule = entry.text("cache_rule", false);
  out.date = entry.text("date", true);
  out.source = entry.text("source", true);
  out.note = entry.text("note", false);
  DI_TRY(entry.done());
  return out;
}

Result<trace::CacheRule> read_rule(const toml::table& table, const std::string& where) {
  Entry entry(table, where);
  trace::CacheRule out;
  out.name = entry.text("name", true);
  out.min_tokens = entry.whole("min_tokens", 0);
  out.step_tokens = entry.whole("step_tokens", 1);
  out.breakpoints = entry.truth("breakpoints");
  const std::string retention = entry.text("retention", true);
  const Result<int64_t> ns = parse_duration(retention);
  if (ns) out.retention_us = *ns / 1000;
  else entry.fail("retention: " + ns.error().message);
  entry.text("note", false);
  entry.text("source", false);
  DI_TRY(entry.done());
  return out;
}

}  // namespace

Result<trace::PriceTable> parse_prices(std::string_view text, const std::string& name) {
  toml::table file;
  try {
    file = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    return Error{Code::kInvalidArgument, fmt::format("{}: line {}: {}", name, error.source().begin.line, error.description())};
  }
  trace::PriceTable out;
  for (const auto& [key, node] : file) {
    const toml::array* list = node.as_array();
    const std::string section(key.str());
    if (list == nullptr || (section != "price" && section != "rule")) return Error{Code::kInvalidArgument, fmt::format("{}: only [[price]] and [[rule]] are known", name)};
    for (const toml::node& element : *list) {
      const std::string where = fmt::format("{}: {} {}", name, section, (section == "price" ? out.entries.size() : out.rules.size()) + 1);
      const toml::table* table = element.as_table();
      if (table == nullptr) return Error{Code::kInvalidArgument, where + " is not a table"};
      if (section == "price") {
        DI_TRY(trace::PriceEntry entry, read_price(*table, where));
        out.entries.push_back(std::move(entry));
      } else {
        DI_TRY(trace::CacheRule rule, read_rule(*table, where));
        out.rules.push_back(std::move(rule));
      }
    }
  }
  return out;
}

Result<trace::PriceTable> load_prices(const std::string& file) {
  DI_TRY(trace::PriceTable own, parse_prices(kPricesToml, "prices.toml"));
  trace::PriceTable out;
  if (!file.empty()) {
    DI_TRY(const std::string text, io::read_small_file(file, kMaxFileBytes));
    DI_TRY(out, parse_prices(text, file));
  }
  out.entries.insert(out.entries.end(), own.entries.begin(), own.entries.end());
  out.rules.insert(out.rules.end(), own.rules.begin(), own.rules.end());
  for (const trace::PriceEntry& entry : out.entries) {
    if (!entry.cache_rule.empty() && out.rule(entry.cache_rule) == nullptr)
      return Error{Code::kInvalidArgument, fmt::format("{}: price {}: there is no rule {}", file.empty() ? "prices.toml" : file, entry.name, entry.cache_rule)};
  }
  return out;
}

}  // namespace deepinfer::apps
