#include "apps/flag_table.h"

#include <fmt/format.h>

namespace deepinfer::apps {
namespace {

FlagRow flag_row(const CLI::Option& option) {
  FlagRow row;
  if (!option.get_snames().empty()) row.short_name = option.get_snames().front();
  if (!option.get_lnames().empty()) row.long_name = option.get_lnames().front();
  if (option.get_positional()) row.positional = option.get_single_name();
  row.help = option.get_description();
  row.required = option.get_required();
  if (option.get_items_expected_max() == 0) return row;  // a toggle
  row.value_name = option.get_type_name();
  row.fallback = option.get_default_str();
  row.takes_file = row.value_name == "FILE" || row.value_name == "DIR" || row.value_name == "MODEL";
  for (size_t at = 0; row.value_name.find('|') != std::string::npos && at <= row.value_name.size();) {
    const size_t end = std::min(row.value_name.find('|', at), row.value_name.size());
    row.choices.push_back(row.value_name.substr(at, end - at));
    at = end + 1;
  }
  return row;
}

std::string left_column(const FlagRow& row) {
  if (!row.positional.empty()) return row.positional;
  const std::string dashes = row.short_name.empty() ? "    --" : fmt::format("-{}, --", row.short_name);
  return fmt::format("{}{}{}{}", dashes, row.long_name, row.value_name.empty() ? "" : " ", row.value_name);
}

// Words of `text` in lines of at most `width` columns, all but the first indented.
std::string wrap(const std::string& text, size_t indent, size_t width) {
  std::string out;
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (column > 0 && indent + column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = 0;
    }
    out += (column > 0 ? " " : "") + word;
    column += word.size() + (column > 0 ? 1 : 0);
    at = end + 1;
  }
  return out;
}

std::string two_columns(const std::vector<std::pair<std::string, std::string>>& lines) {
  constexpr size_t kWidth = 118;
  size_t left = 0;
  for (const auto& [name, text] : lines) left = std::max(left, std::min<size_t>(name.size(), 34));
  std::string out;
  for (const auto& [name, text] : lines) out += fmt::format("  {:<{}}  {}\n", name, left, wrap(text, left + 4, kWidth));
  return out;
}

std::string explained(const FlagRow& row) {
  return row.fallback.empty() ? row.help : fmt::format("{} [{}]", row.help, row.fallback);
}

std::string command_path(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : command_path(*app.get_parent()) + " " + app.get_name();
}

}  // namespace

CommandRow flag_table(const CLI::App& app) {
  CommandRow row;
  row.path = command_path(app);
  row.description = app.get_description();
  row.example = app.get_footer();
  for (const CLI::Option* option : app.get_options()) (option->get_positional() ? row.positionals : row.flags).push_back(flag_row(*option));
  for (const CLI::App* child : app.get_subcommands([](const CLI::App*) { return true; })) row.subcommands.push_back(flag_table(*child));
  return row;
}

std::vector<const CommandRow*> all_commands(const CommandRow& root) {
  std::vector<const CommandRow*> out{&root};
  for (const CommandRow& sub : root.subcommands)
    for (const CommandRow* command : all_commands(sub)) out.push_back(command);
  return out;
}

std::string usage_line(const CommandRow& command) {
  std::string out = command.path;
  if (!command.subcommands.empty()) out += command.positionals.empty() ? " COMMAND" : " [COMMAND]";
  for (const FlagRow& row : command.positionals) out += row.required ? " " + row.positional : " [" + row.positional + "]";
  return out + " [flags]";
}

std::string help_text(const CommandRow& command) {
  std::string out = fmt::format("{}\nusage: {}\n", wrap(command.description, 0, 118), usage_line(command));
  std::vector<std::pair<std::string, std::string>> lines;
  for (const CommandRow& sub : command.subcommands) lines.emplace_back(sub.path.substr(command.path.size() + 1), sub.description);
  if (!lines.empty()) out += "\n" + two_columns(lines);
  lines.clear();
  for (const FlagRow& row : command.positionals) lines.emplace_back(left_column(row), explained(row));
  for (const FlagRow& row : command.flags) lines.emplace_back(left_column(row), explained(row));
  if (!command.subcommands.empty()) out += "\n";
  out += two_columns(lines);
  if (!command.example.empty()) out += "\n" + command.example + "\n";
  return out;
}

std::string environment_name(const std::string& long_name) {
  std::string out = "DEEPINFER_";
  for (const char c : long_name) out += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

}  // namespace deepinfer::apps
