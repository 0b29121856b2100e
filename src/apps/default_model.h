// The model that is served when none is named: nano, a small DeepSeek-V4.1 that comes with the project (models/nano). Nothing is ever
// fetched at run time.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace deepinfer::apps {

// Nano's folder as seen from that of the program: models/nano beside it (a build tree, an unpacked archive), else
// ../share/deepinfer/models/nano (an install prefix). Errors: kNotFound, naming both places.
Result<std::string> default_model_folder(const std::filesystem::path& program_folder);

// `named` if there is something at that path; without a name the default model's folder.
// Errors: kNotFound (nothing there).
Result<std::string> find_model(const std::string& named);

}  // namespace deepinfer::apps
