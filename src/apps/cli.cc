#include "apps/cli.h"

#include <cstdio>
#include <fmt/format.h>

#include "apps/flag_table.h"
#include "apps/version.h"
#include "kernels/linear.h"

namespace deepinfer::apps {
namespace {

const CLI::App& chosen(const CLI::App& app) {
  const std::vector<const CLI::App*> parsed = app.get_subcommands([](const CLI::App* sub) { return sub->parsed(); });
  return parsed.empty() ? app : chosen(*parsed.front());
}

std::string one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

// The kernels abort on an instruction set that is not there; a person is told before.
Result<> check_isa(const Environment& environment) {
  const std::optional<std::string> wanted = environment("DEEPINFER_ISA");
  std::string names;
  for (const Isa isa : available_isas()) {
    if (!wanted || *wanted == isa_name(isa)) return {};
    names += fmt::format(" {}", isa_name(isa));
  }
  return Error{Code::kInvalidArgument, fmt::format("DEEPINFER_ISA is '{}', which this machine does not have; it has{}", *wanted, names)};
}

}  // namespace

int report(const Error& error) {
  fmt::print(stderr, "deepinfer: {}\n", one_line(error.message));
  return error.code == Code::kInvalidArgument ? kExitUsage : kExitFailed;
}

CommandLine::CommandLine() : root_(std::make_unique<CLI::App>("Serves large language models from CPU memory over HTTP.", "deepinfer")) {
  root_->set_help_flag("-h,--help", "show this help");
  root_->set_version_flag("--version", version_text, "show version, compiler and instruction sets");
  root_->formatter_fn([](const CLI::App* app, const std::string&, CLI::AppFormatMode) { return help_text(flag_table(*app)); });
  root_->require_subcommand(0, 1);
  commands_.push_back(add_serve(*root_));
  commands_.push_back(add_run(*root_));
  Command bench = add_bench(*root_);
  commands_.push_back(add_bench_cache(*bench.app));  // before what it stands below, which is parsed then too
  commands_.push_back(std::move(bench));
  CLI::App* model = root_->add_subcommand("model", "Looks at model files.");
  model->require_subcommand(0, 1);
  commands_.push_back(add_model_info(*model));
  commands_.push_back(add_model_synth(*model));
  CLI::App* cache = root_->add_subcommand("cache", "Looks at, checks, cleans and fills a cache directory.");
  cache->require_subcommand(0, 1);
  commands_.push_back(add_cache_stat(*cache));
  commands_.push_back(add_cache_verify(*cache));
  commands_.push_back(add_cache_purge(*cache));
  commands_.push_back(add_cache_warm(*cache));
  commands_.push_back(add_tokenize(*root_));
  commands_.push_back(add_render(*root_));
  commands_.push_back(add_audit(*root_));
  CLI::App* debug = root_->add_subcommand("debug", "Looks inside a model.");
  debug->require_subcommand(0, 1);
  commands_.push_back(add_debug_dump(*debug));
  commands_.push_back(add_completion(*root_));
  commands_.push_back(add_man(*root_));
  // After the subcommands, which would inherit it.
  root_->footer("Example:\n  deepinfer serve model.gguf --port 8080\nEach flag can also stand in the environment (DEEPINFER_PORT) or in a TOML file (--config).");
}

int CommandLine::run(int argc, const char* const* argv, const Environment& environment) {
  try {
    root_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return print_help_or_fail(error);
  }
  for (const Command& command : commands_) {
    if (!command.app->parsed()) continue;
    if (Result<> isa = check_isa(environment); !isa) return report(isa.error());
    if (Result<> settings = apply_settings(*root_, *command.app, environment); !settings) return report(settings.error());
    return command.run();
  }
  const CLI::App& app = chosen(*root_);
  std::fputs(help_text(flag_table(app)).c_str(), stderr);
  return kExitUsage;
}

int CommandLine::print_help_or_fail(const CLI::ParseError& error) const {
  const CLI::App& app = chosen(*root_);
  if (dynamic_cast<const CLI::CallForHelp*>(&error) != nullptr) {
    std::fputs(help_text(flag_table(app)).c_str(), stdout);
    return kExitDone;
  }
  if (dynamic_cast<const CLI::CallForVersion*>(&error) != nullptr) {
    std::fputs(version_text().c_str(), stdout);
    return kExitDone;
  }
  const std::string path = flag_table(app).path;
  return report(Error{Code::kInvalidArgument, fmt::format("{}; see '{} --help'", one_line(error.what()), path)});
}

}  // namespace deepinfer::apps
