#include "apps/settings.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <toml++/toml.h>
#include <vector>

#include "apps/flag_table.h"

namespace deepinfer::apps {
namespace {

// What a flag is called outside the command line. Of the positionals only MODEL has a name there: a service has no other way.
std::string long_name(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return option.get_lnames().front();
  return option.get_single_name() == "MODEL" ? "model" : "";
}

CLI::Option* find_flag(CLI::App& command, const std::string& name) {
  for (CLI::Option* option : command.get_options())
    if (long_name(*option) == name) return option;
  return nullptr;
}

bool any_command_has(const CLI::App& root, const std::string& flag) {
  for (const CLI::App* command : root.get_subcommands([](const CLI::App*) { return true; })) {
    for (const CLI::Option* option : command->get_options())
      if (long_name(*option) == flag) return true;
    if (any_command_has(*command, flag)) return true;
  }
  return false;
}

bool is_command(const CLI::App& root, const std::string& name) {
  for (const CLI::App* command : root.get_subcommands([](const CLI::App*) { return true; }))
    if (command->get_name() == name || is_command(*command, name)) return true;
  return false;
}

// The option's values as if they had been typed. `where` says where they stand, for the message.
Result<> set(CLI::Option& option, const std::vector<std::string>& values, const std::string& where) {
  try {
    option.add_result(values);
    option.run_callback();
  } catch (const CLI::ParseError& error) {
    return Error{Code::kInvalidArgument, fmt::format("{}: {}", where, error.what())};
  }
  return {};
}

Result<std::vector<std::string>> as_text(const toml::node& node, const std::string& where) {
  if (const auto* text = node.as_string()) return std::vector<std::string>{text->get()};
  if (const auto* number = node.as_integer()) return std::vector<std::string>{std::to_string(number->get())};
  if (const auto* real = node.as_floating_point()) return std::vector<std::string>{fmt::format("{}", real->get())};
  if (const auto* truth = node.as_boolean()) return std::vector<std::string>{truth->get() ? "true" : "false"};
  if (const auto* array = node.as_array()) {
    std::vector<std::string> all;
    for (const toml::node& element : *array) {
      DI_TRY(const std::vector<std::string> one, as_text(element, where));
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  return Error{Code::kInvalidArgument, where + " is neither a text, a number, a truth value nor a list of these"};
}

// Keys of one table of the file. At the top, keys of other subcommands and tables are left for those.
Result<> apply_table(const CLI::App& root, CLI::App& command, const toml::table& table, const std::string& path, bool top) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (top && node.is_table()) continue;
    const std::string where = fmt::format("{}: {}", path, top ? name : command.get_name() + "." + name);
    CLI::Option* option = find_flag(command, name);
    if (option == nullptr || name == "config" || name == "help") {
      if (top && name != "config" && name != "help" && any_command_has(root, name)) continue;
      return Error{Code::kInvalidArgument, where + " is not a flag; see --help for those there are"};
    }
    if (option->count() > 0) continue;  // the command line or the environment said it
    DI_TRY(const std::vector<std::string> values, as_text(node, where));
    DI_TRY(set(*option, values, where));
  }
  return {};
}

Result<> apply_file(const CLI::App& root, CLI::App& command, const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return Error{Code::kIo, fmt::format("{} cannot be read: {}", path, std::strerror(errno))};
  toml::table file;
  try {
    file = toml::parse(stream, path);
  } catch (const toml::parse_error& error) {
    return Error{Code::kInvalidArgument, fmt::format("{}, line {}: {}", path, error.source().begin.line, error.description())};
  }
  for (const auto& [key, node] : file) {
    if (!node.is_table()) continue;
    if (!is_command(root, std::string(key.str()))) return Error{Code::kInvalidArgument, fmt::format("{}: [{}] is not a subcommand", path, std::string(key.str()))};
  }
  // The subcommand's own table says it more closely than the top.
  if (const toml::table* own = file[command.get_name()].as_table()) DI_TRY(apply_table(root, command, *own, path, false));
  return apply_table(root, command, file, path, true);
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
  };
}

Result<> apply_settings(const CLI::App& root, CLI::App& command, const Environment& environment) {
  for (CLI::Option* option : command.get_options()) {
    const std::string name = long_name(*option);
    if (name.empty() || name == "help" || option->count() > 0) continue;
    if (const std::optional<std::string> value = environment(environment_name(name)))
      DI_TRY(set(*option, {*value}, environment_name(name)));
  }
  const CLI::Option* config = find_flag(command, "config");
  if (config == nullptr || config->count() == 0) return {};
  return apply_file(root, command, config->results().back());
}

}  // namespace deepinfer::apps
