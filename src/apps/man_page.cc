#include "apps/man_page.h"

#include <cstdio>
#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/version.h"

namespace deepinfer::apps {
namespace {

// Text for roff: hyphens that are typed stay hyphens, and a line cannot begin with a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += std::string("\\&") + c;
    else out += c;
  }
  return out;
}

void add_flag(const FlagRow& row, std::string& out) {
  std::string name;
  if (!row.positional.empty()) name = fmt::format("\\fI{}\\fR", roff(row.positional));
  else name = fmt::format("{}\\fB\\-\\-{}\\fR", row.short_name.empty() ? "" : fmt::format("\\fB\\-{}\\fR, ", row.short_name), roff(row.long_name));
  if (row.positional.empty() && !row.value_name.empty()) name += fmt::format(" \\fI{}\\fR", roff(row.value_name));
  out += fmt::format(".TP\n{}\n{}{}\n", name, roff(row.help), row.fallback.empty() ? "." : roff(fmt::format(". Default: {}.", row.fallback)));
}

void add_command(const CommandRow& command, std::string& out) {
  out += fmt::format(".SS {}\n{}\n", roff(usage_line(command)), roff(command.description));
  for (const FlagRow& row : command.positionals) add_flag(row, out);
  for (const FlagRow& row : command.flags) add_flag(row, out);
  if (!command.example.empty()) out += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(command.example));
}

}  // namespace

std::string man_page(const CommandRow& root) {
  std::string out = fmt::format(".TH DEEPINFER 1 \"\" \"deepinfer {}\"\n", version());
  out += fmt::format(".SH NAME\ndeepinfer \\- {}\n", roff(root.description));
  out += ".SH SYNOPSIS\n\\fBdeepinfer\\fR \\fICOMMAND\\fR [\\fIflags\\fR]\n.SH COMMANDS\n";
  for (const CommandRow* command : all_commands(root))
    if (command != &root) add_command(*command, out);
  out += ".SH ENVIRONMENT\nEvery flag can stand in the environment: \\fB\\-\\-port\\fR is \\fBDEEPINFER_PORT\\fR. The command line goes before the\n"
         "environment, the environment before the file.\n"
         ".TP\nDEEPINFER_ISA\nForces one instruction set (portable, avx2, avxvnni, avx512f, avx512, amx); for tests and comparisons.\n"
         ".SH FILES\nWith \\fB\\-\\-config\\fR \\fIFILE\\fR a TOML file gives flags: a key at the top is for every subcommand that has\n"
         "such a flag, a key in a table for the subcommand of that name.\n"
         ".PP\n.nf\nthreads = 8\n[serve]\nport = 9000\n.fi\n"
         ".SH EXIT STATUS\n0: done. 1: the world failed (a file, a port, a model). 2: wrong usage.\n";
  return out;
}

Command add_man(CLI::App& root) {
  CLI::App* app = root.add_subcommand("man", "Prints the manual page.");
  app->footer("Example:\n  deepinfer man | man -l -");
  return {app, [&root] {
            std::fputs(man_page(flag_table(root)).c_str(), stdout);
            return kExitDone;
          }};
}

}  // namespace deepinfer::apps
