#include "apps/default_model.h"

#include <fmt/format.h>
#include <system_error>

namespace deepinfer::apps {

namespace fs = std::filesystem;

Result<std::string> default_model_folder(const fs::path& program_folder) {
  const fs::path beside = program_folder / "models/nano";
  const fs::path installed = (program_folder / "../share/deepinfer/models/nano").lexically_normal();
  std::error_code ignored;
  for (const fs::path& folder : {beside, installed})
    if (fs::exists(folder / "config.json", ignored)) return folder.string();
  return Error{Code::kNotFound, fmt::format("the default model is neither in {} nor in {}; name one: a .gguf file or a safetensors folder",
                                            beside.string(), installed.string())};
}

Result<std::string> find_model(const std::string& named) {
  std::error_code error;
  if (!named.empty()) {
    if (fs::exists(named, error)) return named;
    return Error{Code::kNotFound, fmt::format("{}: no such file or folder; a model is a .gguf file or a safetensors folder", named)};
  }
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return Error{Code::kNotFound, fmt::format("the default model is looked for beside this program, and /proc/self/exe cannot be read: {}", error.message())};
  return default_model_folder(program.parent_path());
}

}  // namespace deepinfer::apps
