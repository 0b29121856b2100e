// Where the damaged model files are (list.json there says what each is).
#pragma once

#include <string>

namespace deepinfer {

inline const std::string kBroken = DI_SOURCE_DIR "/tests/golden/dense/broken/";

}  // namespace deepinfer
