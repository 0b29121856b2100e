// Encodes documents with a tokenizer and measures it: what compare.py runs beside the `tokenizers` package.
//
//   encode_documents TOKENIZER DOCUMENTS [--ids FILE] [--rounds N]
//
// TOKENIZER: a .gguf file or a tokenizer.json. DOCUMENTS: records of a u32 length and that many bytes. --ids writes, for each
// document, a u32 count and that many int32 ids. Prints one JSON object: megabytes, ids, load seconds and MB/s of each
// round, in CPU time.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "vocabulary_files.h"

namespace {

using deepinfer::TokenId;
using deepinfer::read_file;
using deepinfer::tokenizer::Recognize;
using deepinfer::tokenizer::Tokenizer;

// CPU time of this thread: both sides of the comparison run on one, and other work on the machine should not count.
double now_s() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::vector<std::string_view> documents_of(std::string_view bytes) {
  std::vector<std::string_view> documents;
  while (bytes.size() >= 4) {
    uint32_t length;
    std::memcpy(&length, bytes.data(), 4);
    documents.push_back(bytes.substr(4, length));
    bytes.remove_prefix(std::min<size_t>(bytes.size(), 4 + size_t{length}));
  }
  return documents;
}

}  // namespace

int main(int argc, char** argv) {
  std::string ids_path;
  int rounds = 1;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--ids" && i + 1 < argc) {
      ids_path = argv[++i];
    } else if (arg == "--rounds" && i + 1 < argc) {
      rounds = std::atoi(argv[++i]);
    } else {
      files.push_back(arg);
    }
  }
  if (files.size() != 2) {
    std::fprintf(stderr, "usage: encode_documents TOKENIZER DOCUMENTS [--ids FILE] [--rounds N]\n");
    return 2;
  }
  const double load_start = now_s();
  auto tokenizer = files[0].ends_with(".gguf") ? deepinfer::testing::tokenizer_from_gguf(files[0]) : Tokenizer::from_json(read_file(files[0]), "", files[0]);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  const double load_s = now_s() - load_start;
  const std::string bytes = read_file(files[1]);
  const std::vector<std::string_view> documents = documents_of(bytes);
  size_t num_bytes = 0, num_ids = 0;
  for (const auto d : documents) num_bytes += d.size();

  std::vector<TokenId> ids;
  std::string rates;
  for (int round = 0; round < rounds; ++round) {
    num_ids = 0;
    const double start = now_s();
    for (const auto d : documents) {
      ids.clear();
      (*tokenizer)->encode(d, Recognize::kNothing, ids);
      num_ids += ids.size();
    }
    char rate[32];
    std::snprintf(rate, sizeof rate, "%s%.1f", round ? ", " : "", static_cast<double>(num_bytes) / 1e6 / (now_s() - start));
    rates += rate;
  }
  if (!ids_path.empty()) {
    std::ofstream out(ids_path, std::ios::binary);
    for (const auto d : documents) {
      ids.clear();
      (*tokenizer)->encode(d, Recognize::kNothing, ids);
      const uint32_t count = static_cast<uint32_t>(ids.size());
      out.write(reinterpret_cast<const char*>(&count), 4);
      out.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * sizeof(TokenId)));
    }
  }
  std::printf("{\"mb\": %.3f, \"documents\": %zu, \"ids\": %zu, \"load_s\": %.3f, \"mb_s\": [%s]}\n", static_cast<double>(num_bytes) / 1e6,
              documents.size(), num_ids, load_s, rates.c_str());
  return 0;
}
