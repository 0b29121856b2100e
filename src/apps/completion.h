// Shell completion scripts from the flag table: subcommands, flags, values of "bf16|q8" flags, files where one is wanted.
#pragma once

#include <string>

#include "apps/flag_table.h"

namespace deepinfer::apps {

std::string bash_completion(const CommandRow& root);
std::string zsh_completion(const CommandRow& root);
std::string fish_completion(const CommandRow& root);

}  // namespace deepinfer::apps
