// What the command line left open: flags may also stand in the environment (DEEPINFER_PORT) or in a TOML file (--config).
// Precedence: command line > environment > file > default. CLI11's own order puts the file over the environment, and its reader
// is not a TOML reader, so neither is used.
//
// In the file a key at the top is for every subcommand that has such a flag, a key in a table for the subcommand of that name:
//   threads = 8
//   [serve]
//   port = 9000
// A key that no subcommand knows is an error: a misspelt limit must not be ignored.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace deepinfer::apps {

using Environment = std::function<std::optional<std::string>(const std::string& name)>;  // an empty value counts as unset
Environment process_environment();

// Completes the flags of `command`, a parsed subcommand of `root` that has a --config flag, and runs their parsers.
// Errors: kInvalidArgument (unknown key, value of the wrong form; names the variable or the file), kIo (the file cannot be read).
Result<> apply_settings(const CLI::App& root, CLI::App& command, const Environment& environment);

}  // namespace deepinfer::apps
