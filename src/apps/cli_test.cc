#include "apps/cli.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "apps/completion.h"
#include "apps/flag_table.h"
#include "apps/flags.h"
#include "apps/man_page.h"

namespace deepinfer::apps {
namespace {

using testing::HasSubstr;

int run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "deepinfer");
  return CommandLine().run(static_cast<int>(arguments.size()), arguments.data(), [](const std::string&) { return std::nullopt; });
}

TEST(Cli, ExitCodes) {
  EXPECT_EQ(run({"--help"}), kExitDone);
  EXPECT_EQ(run({"--version"}), kExitDone);
  EXPECT_EQ(run({}), kExitUsage);
  EXPECT_EQ(run({"no-such-command"}), kExitUsage);
  EXPECT_EQ(run({"completion", "tcsh"}), kExitUsage);
  EXPECT_EQ(run({"bench", "cache"}), kExitUsage) << "the subcommand, not a model of that name";
}

TEST(Cli, AListTakesOneValueAFlag) {
  CLI::App app;
  Flags add(app);
  std::vector<std::string> cases, rest;
  std::string model;
  add.list("--only", cases, "CASE", "");
  add.text("MODEL", model, "MODEL", "");
  add.list("FILE", rest, "FILE", "");
  app.parse("--only one model --only two a b");
  EXPECT_EQ(cases, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(model, "model");
  EXPECT_EQ(rest, (std::vector<std::string>{"a", "b"}));
}

TEST(Cli, HelpOfEverySubcommandFitsAScreenAndShowsAnExample) {
  CommandLine line;
  const CommandRow table = flag_table(line.tree());
  for (const CommandRow* command : all_commands(table)) {
    const std::string help = help_text(*command);
    EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 50) << command->path;
    for (size_t at = 0; at < help.size();) {
      const size_t end = std::min(help.find('\n', at), help.size());
      EXPECT_LE(end - at, 120u) << command->path << ": " << help.substr(at, end - at);
      at = end + 1;
    }
    const bool needs_example = command->subcommands.empty();
    EXPECT_TRUE(!needs_example || help.find("Example:\n") != std::string::npos) << command->path;
    for (const FlagRow& row : command->flags) EXPECT_FALSE(row.help.empty()) << command->path << " --" << row.long_name;
  }
}

TEST(Cli, EveryFlagIsInTheManPageAndInEveryCompletion) {
  CommandLine line;
  const CommandRow table = flag_table(line.tree());
  const std::string man = man_page(table), bash = bash_completion(table), zsh = zsh_completion(table), fish = fish_completion(table);
  for (const CommandRow* command : all_commands(table)) {
    for (const FlagRow& row : command->flags) {
      if (command != &table) {
        std::string escaped;
        for (const char c : row.long_name) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
        EXPECT_THAT(man, HasSubstr("\\-\\-" + escaped)) << row.long_name;
      }
      EXPECT_THAT(bash, HasSubstr("--" + row.long_name));
      EXPECT_THAT(zsh, HasSubstr("--" + row.long_name + "["));
      EXPECT_THAT(fish, HasSubstr(" -l " + row.long_name + " "));
    }
  }
}

TEST(Cli, BashTakesItsCompletionScript) {
  CommandLine line;
  const std::string path = std::filesystem::temp_directory_path() / ("cli_test_" + std::to_string(getpid()) + ".bash");
  std::ofstream(path) << bash_completion(flag_table(line.tree()))
                      << "COMP_WORDS=(deepinfer completion z); COMP_CWORD=2; _deepinfer\n"
                         "COMP_WORDS=(deepinfer comp); COMP_CWORD=1; _deepinfer; [ \"${COMPREPLY[*]}\" = completion ] || exit 3\n"
                         "COMP_WORDS=(deepinfer man --h); COMP_CWORD=2; _deepinfer; [ \"${COMPREPLY[*]}\" = --help ] || exit 4\n"
                         "COMP_WORDS=(deepinfer bench m.gguf --rou); COMP_CWORD=3; _deepinfer; [ \"${COMPREPLY[*]}\" = --rounds ] || exit 5\n"
                         "COMP_WORDS=(deepinfer bench cache --blo); COMP_CWORD=3; _deepinfer; [ \"${COMPREPLY[*]}\" = --blocks ] || exit 6\n";
  EXPECT_EQ(WEXITSTATUS(std::system(("bash " + path).c_str())), 0);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace deepinfer::apps
