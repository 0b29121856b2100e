// Which schemas of the JSON Schema test suite are honoured, and whether a mask ever lets through what a schema forbids.
//
//   schema_suite FOLDER [--wrong]      FOLDER: tests/draft2020-12 of the suite (the sdist of PyPI's jsonschema carries it, in json/tests)
//
// A schema is honoured or refused as a whole. For one that is honoured every instance goes through a matcher byte by byte, as compact
// JSON with its keys in the order of the file, and may be accepted or not; the suite says whether it is valid. Prints one row a file, in
// Markdown: groups honoured, groups refused, valid instances accepted, valid instances not accepted (stricter than the schema: another
// order of keys, another notation), invalid instances rejected, and invalid instances accepted, which must be none. --wrong names the
// instances of the last kind and, as "strict", of the last but two.
#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/fake_vocabulary.h"
#include "grammar/grammar.h"
#include "read_file.h"

namespace {

using namespace deepinfer;
namespace json = boost::json;

struct Row {
  int honoured = 0, refused = 0, accepted = 0, strict = 0, rejected = 0, wrong = 0;
  void operator+=(const Row& other) {
    honoured += other.honoured;
    refused += other.refused;
    accepted += other.accepted;
    strict += other.strict;
    rejected += other.rejected;
    wrong += other.wrong;
  }
};

bool accepts(const grammar::Grammar& grammar, size_t num_words, std::string_view text) {
  grammar::Matcher matcher = grammar.matcher().value();
  std::vector<uint32_t> bits(num_words);
  for (const char c : text) {
    const auto token = static_cast<unsigned char>(c);  // a byte's token in FakeVocabulary
    if (!matcher.mask(bits) || (bits[token / 32] >> (token % 32) & 1) == 0 || !matcher.accept(token)) return false;
  }
  return matcher.is_accepting();
}

void print(const std::string& name, const Row& row) {
  std::printf("| %s | %d | %d | %d | %d | %d | %d |\n", name.c_str(), row.honoured, row.refused, row.accepted, row.strict, row.rejected, row.wrong);
}

Row run_file(const grammar::Vocabulary& vocabulary, const std::filesystem::path& path, bool tell) {
  Row row;
  const json::value groups = json::parse(read_file(path.string()));
  for (const json::value& group : groups.as_array()) {
    const std::string spec = json::serialize(json::object{{"kind", "json_schema"}, {"schema", group.at("schema")}});
    const auto compiled = grammar::Grammar::compile(vocabulary, spec);
    if (!compiled) {
      row.refused += 1;
      if (tell) std::printf("refused: %s: %s: %s\n", path.stem().c_str(), group.at("description").as_string().c_str(), compiled.error().message.c_str());
      continue;
    }
    row.honoured += 1;
    for (const json::value& test : group.at("tests").as_array()) {
      const bool valid = test.at("valid").as_bool(), accepted = accepts(**compiled, vocabulary.mask_words(), json::serialize(test.at("data")));
      (valid ? accepted ? row.accepted : row.strict : accepted ? row.wrong : row.rejected) += 1;
      if (tell && valid != accepted) {
        std::printf("%s: %s: %s: %s\n", valid ? "strict" : "WRONG", path.stem().c_str(), group.at("description").as_string().c_str(),
                    test.at("description").as_string().c_str());
      }
    }
  }
  return row;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: schema_suite FOLDER [--wrong]\n");
    return 2;
  }
  const bool tell = argc > 2 && std::string_view(argv[2]) == "--wrong";
  const grammar::FakeVocabulary tokenizer;
  const TokenId end = tokenizer.end();
  const auto vocabulary = grammar::Vocabulary::build(tokenizer, tokenizer.vocab_size(), {&end, 1}).value();
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[1])) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::printf("| file | honoured | refused | valid accepted | valid not accepted | invalid rejected | invalid accepted |\n|---|---|---|---|---|---|---|\n");
  Row total;
  for (const auto& path : files) {
    const Row row = run_file(*vocabulary, path, tell);
    print(std::filesystem::relative(path, argv[1]).replace_extension().string(), row);
    total += row;
  }
  print("all", total);
  return total.wrong == 0 ? 0 : 1;
}
