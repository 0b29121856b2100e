// Typed flags of one subcommand over CLI11. Every flag goes through here, so that each has a value name, a default in words, one
// way of saying what is wrong, and can also come from the environment or a TOML file (settings.h). The CLI11 tree that results is
// the one table behind parsing, --help, shell completion and the man page (flag_table.h).
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer::apps {

class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(&app) {}

  // `names` as CLI11 writes them: "-p,--port", or "MODEL" for a positional. `value_name` is shown ("SIZE", "FILE", "bf16|q8");
  // shells complete files where it is FILE, DIR or MODEL. The bound variable keeps its value when nobody sets the flag; it must
  // outlive parsing. `fallback` says the default in words where the variable cannot.
  CLI::Option* text(const std::string& names, std::string& out, const std::string& value_name, const std::string& help, const std::string& fallback = "");
  // A flag takes one value each time that it stands there, a positional all that are left.
  CLI::Option* list(const std::string& names, std::vector<std::string>& out, const std::string& value_name, const std::string& help);
  CLI::Option* number(const std::string& names, int32_t& out, int32_t min, int32_t max, const std::string& value_name, const std::string& help, const std::string& fallback = "");
  CLI::Option* real(const std::string& names, float& out, float min, float max, const std::string& help);
  CLI::Option* seed(const std::string& names, std::optional<uint64_t>& out, const std::string& help, const std::string& fallback);
  CLI::Option* size(const std::string& names, std::optional<uint64_t>& out, const std::string& help, const std::string& fallback);
  CLI::Option* duration(const std::string& names, int64_t& out_ns, const std::string& help, const std::string& fallback);
  CLI::Option* choice(const std::string& names, std::string& out, const std::vector<std::string>& choices, const std::string& help);
  CLI::Option* toggle(const std::string& names, bool& out, const std::string& help);

 private:
  CLI::App* app_;
};

}  // namespace deepinfer::apps
