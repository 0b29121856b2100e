// temp_folder.h: a folder of the test program's own, which goes with it. Tests run as processes side by side, those of several builds too: a file with a
// fixed name would be another's.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>
#include <filesystem>
#include <string>

#include "base/check.h"

namespace deepinfer {

// Ends in "/".
inline const std::string& temp_folder() {
  struct Folder {
    std::string path = testing::TempDir() + "deepinfer_XXXXXX";
    const pid_t owner = getpid();  // children of a fork end too
    Folder() {
      CHECK(::mkdtemp(path.data()) != nullptr);
      path += "/";
    }
    ~Folder() {
      std::error_code ignored;
      if (getpid() == owner) std::filesystem::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path;
}

}  // namespace deepinfer
