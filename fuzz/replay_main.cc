// Runs every file of the folders given as arguments through a fuzz target. Fails if a folder holds none, so that a corpus that
// got lost is noticed.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  size_t num_files = 0;
  for (int i = 1; i < argc; ++i) {
    std::error_code error;
    std::set<std::filesystem::path> paths;  // in a fixed order
    for (std::filesystem::recursive_directory_iterator it(argv[i], error), end; !error && it != end; it.increment(error)) {
      if (it->is_regular_file(error)) paths.insert(it->path());
    }
    for (const auto& path : paths) {
      std::ifstream file(path, std::ios::binary);
      const std::string content{std::istreambuf_iterator<char>(file), {}};
      std::fprintf(stderr, "%s\n", path.c_str());  // before the run: the last one named is the one that crashed
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(content.data()), content.size());
      ++num_files;
    }
  }
  std::printf("%zu files\n", num_files);
  return num_files > 0 ? 0 : 1;
}
