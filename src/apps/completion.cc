#include "apps/completion.h"

#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/commands.h"
#include "apps/flags.h"

namespace deepinfer::apps {
namespace {

std::string last_word(const std::string& path) { return path.substr(path.rfind(' ') + 1); }

// "deepinfer model info" -> "model info"; the root is "".
std::string below_root(const CommandRow& command) {
  const size_t space = command.path.find(' ');
  return space == std::string::npos ? "" : command.path.substr(space + 1);
}

std::string words_of(const CommandRow& command) {
  std::vector<std::string> words;
  for (const CommandRow& sub : command.subcommands) words.push_back(last_word(sub.path));
  for (const FlagRow& row : command.flags) words.push_back("--" + row.long_name);
  return fmt::format("{}", fmt::join(words, " "));
}

bool wants_file(const CommandRow& command) {
  for (const FlagRow& row : command.positionals)
    if (row.takes_file) return true;
  return false;
}

// Inside single quotes of a shell.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Inside the [description] of a zsh _arguments specification.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_value(const FlagRow& row) {
  const std::string name = zsh_text(row.positional.empty() ? row.value_name : row.positional);
  if (!row.choices.empty()) return fmt::format(":{}:({})", name, fmt::join(row.choices, " "));
  return fmt::format(":{}:{}", name, row.takes_file ? "_files" : " ");
}

std::string zsh_function_name(const CommandRow& command) {
  std::string out = "_" + command.path;
  for (char& c : out)
    if (c == ' ') c = '_';
  return out;
}

void add_zsh_function(const CommandRow& command, std::string& out) {
  out += fmt::format("{}() {{\n", zsh_function_name(command));
  if (!command.subcommands.empty()) out += "  local line state\n";
  out += "  _arguments -C";
  for (const FlagRow& row : command.flags)
    out += fmt::format(" \\\n    {}", shell_quoted(fmt::format("--{}[{}]{}", row.long_name, zsh_text(row.help), row.value_name.empty() ? "" : zsh_value(row))));
  if (command.subcommands.empty()) {
    for (const FlagRow& row : command.positionals) out += fmt::format(" \\\n    {}", shell_quoted(zsh_value(row)));
    out += "\n}\n";
    return;
  }
  std::vector<std::string> names;
  for (const CommandRow& sub : command.subcommands) names.push_back(shell_quoted(fmt::format("{}:{}", last_word(sub.path), zsh_text(sub.description))));
  out += fmt::format(" \\\n    '1: :->command' '*::arg:->rest'\n  case $state in\n    command)\n      local -a commands=({})\n"
                     "      _describe command commands{} ;;\n    rest)\n      case $line[1] in\n", fmt::join(names, " "), wants_file(command) ? "; _files" : "");
  for (const CommandRow& sub : command.subcommands) out += fmt::format("        {}) {} ;;\n", last_word(sub.path), zsh_function_name(sub));
  out += "      esac ;;\n  esac\n}\n";
}

}  // namespace

std::string bash_completion(const CommandRow& root) {
  std::string words, files, values;
  for (const CommandRow* command : all_commands(root)) {
    words += fmt::format("    {}) words={} ;;\n", shell_quoted(below_root(*command)), shell_quoted(words_of(*command)));
    if (wants_file(*command)) files += fmt::format("{}{}", files.empty() ? "" : "|", shell_quoted(below_root(*command)));
    for (const FlagRow& row : command->flags) {
      const std::string pattern = shell_quoted(below_root(*command) + " --" + row.long_name);
      if (!row.choices.empty())
        values += fmt::format("    {}) COMPREPLY=($(compgen -W {} -- \"$word\")); return ;;\n", pattern, shell_quoted(fmt::format("{}", fmt::join(row.choices, " "))));
      else if (row.takes_file)
        values += fmt::format("    {}) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", pattern);
      else if (!row.value_name.empty())
        values += fmt::format("    {}) return ;;\n", pattern);
    }
  }
  std::string nested;
  for (const CommandRow& sub : root.subcommands)
    for (const CommandRow& below : sub.subcommands) nested += (nested.empty() ? "" : "|") + shell_quoted(below_root(below));
  return fmt::format(R"(# bash completion for deepinfer; written by 'deepinfer completion bash'
_deepinfer() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command='' words=''
  [ "$COMP_CWORD" -gt 1 ] && command=${{COMP_WORDS[1]}}
  case "$command ${{COMP_WORDS[2]}}" in
    {}) [ "$COMP_CWORD" -gt 2 ] && command="$command ${{COMP_WORDS[2]}}" ;;
  esac
  case "$command $before" in
{}  esac
  case "$command" in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  case "$command" in
    {}) [[ $word == -* ]] || COMPREPLY+=($(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _deepinfer deepinfer
)", nested.empty() ? "''" : nested, values, words, files.empty() ? "' '" : files);
}

std::string zsh_completion(const CommandRow& root) {
  std::string out = "#compdef deepinfer\n# zsh completion for deepinfer; written by 'deepinfer completion zsh'\n";
  for (const CommandRow* command : all_commands(root)) add_zsh_function(*command, out);
  return out + "if [ \"$funcstack[1]\" = _deepinfer ]; then _deepinfer \"$@\"; else compdef _deepinfer deepinfer; fi\n";
}

std::string fish_completion(const CommandRow& root) {
  std::string out = "# fish completion for deepinfer; written by 'deepinfer completion fish'\ncomplete -c deepinfer -f\n";
  for (const CommandRow* command : all_commands(root)) {
    std::string when = "__fish_use_subcommand";
    if (command != &root) {
      when.clear();
      for (size_t at = 0; at < below_root(*command).size();) {
        const std::string path = below_root(*command);
        const size_t end = std::min(path.find(' ', at), path.size());
        when += fmt::format("{}__fish_seen_subcommand_from {}", when.empty() ? "" : "; and ", path.substr(at, end - at));
        at = end + 1;
      }
    }
    for (const CommandRow& sub : command->subcommands)
      out += fmt::format("complete -c deepinfer -n {} -a {} -d {}\n", shell_quoted(when), last_word(sub.path), shell_quoted(sub.description));
    for (const FlagRow& row : command->flags) {
      out += fmt::format("complete -c deepinfer -n {} -l {}{} -d {}", shell_quoted(when), row.long_name,
                         row.short_name.empty() ? "" : " -s " + row.short_name, shell_quoted(row.help));
      if (!row.choices.empty()) out += fmt::format(" -x -a {}", shell_quoted(fmt::format("{}", fmt::join(row.choices, " "))));
      else if (row.takes_file) out += " -r -F";
      else if (!row.value_name.empty()) out += " -x";
      out += "\n";
    }
    if (wants_file(*command)) out += fmt::format("complete -c deepinfer -n {} -F\n", shell_quoted(when));
  }
  return out;
}

Command add_completion(CLI::App& root) {
  CLI::App* app = root.add_subcommand("completion", "Prints a completion script for a shell.");
  app->footer("Example:\n  deepinfer completion bash > ~/.local/share/bash-completion/completions/deepinfer");
  auto shell = std::make_shared<std::string>();
  Flags(*app).choice("SHELL", *shell, {"bash", "zsh", "fish"}, "which shell")->default_str("")->required();
  return {app, [&root, shell] {
            const CommandRow table = flag_table(root);
            const std::string text = *shell == "bash" ? bash_completion(table) : *shell == "zsh" ? zsh_completion(table) : fish_completion(table);
            std::fputs(text.c_str(), stdout);
            return kExitDone;
          }};
}

}  // namespace deepinfer::apps
