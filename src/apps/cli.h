// The command line as a whole: builds the tree of subcommands, parses, lets environment and file fill in, runs one action.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <vector>

#include "apps/commands.h"
#include "apps/settings.h"

namespace deepinfer::apps {

class CommandLine {
 public:
  CommandLine();
  // argv[0] is skipped. Returns the exit code.
  int run(int argc, const char* const* argv, const Environment& environment);
  const CLI::App& tree() const { return *root_; }

 private:
  int print_help_or_fail(const CLI::ParseError& error) const;

  std::unique_ptr<CLI::App> root_;
  std::vector<Command> commands_;
};

}  // namespace deepinfer::apps
