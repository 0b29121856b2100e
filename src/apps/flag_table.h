// The CLI11 tree as plain rows: what --help, shell completion and the man page are written from, so that they cannot disagree.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace deepinfer::apps {

struct FlagRow {
  std::string short_name;            // "p", or ""
  std::string long_name;             // "port", or "" for a positional
  std::string positional;            // "MODEL", or ""
  std::string value_name;            // "" for a toggle
  std::string help;
  std::string fallback;              // the default in words; "" if there is none to speak of
  std::vector<std::string> choices;  // of "bf16|q8"
  bool required = false;
  bool takes_file = false;
};

struct CommandRow {
  std::string path;  // "deepinfer model info"
  std::string description;
  std::string example;
  std::vector<FlagRow> positionals, flags;
  std::vector<CommandRow> subcommands;
};

CommandRow flag_table(const CLI::App& app);

// Depth first, the root first.
std::vector<const CommandRow*> all_commands(const CommandRow& root);

std::string usage_line(const CommandRow& command);  // "deepinfer serve [MODEL] [flags]"
std::string help_text(const CommandRow& command);   // what --help prints

// The environment variable that stands for a flag: port -> DEEPINFER_PORT.
std::string environment_name(const std::string& long_name);

}  // namespace deepinfer::apps
