// What constraints cost at a model's vocabulary: building its trie, compiling, making a matcher, and each mask of a random walk.
//
//   grammar_masks TOKENIZER.json [--tokens N] [--walks N]
//
// A walk samples each next token evenly from its mask, which is harder than what a model writes: it goes into rare states. Masks are
// timed one by one, in CPU time; the first walk of each grammar is shown apart, as it meets cold caches. One thread.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "bench.h"
#include "grammar/grammar.h"
#include "read_file.h"

namespace {

using namespace deepinfer;

// An object of 200 properties of all types, some nested, half of them required.
std::string large_schema() {
  const char* const types[] = {R"({"type":"string"})", R"({"type":"integer","minimum":0,"maximum":100000})", R"({"type":"number"})", R"({"type":"boolean"})",
                               R"({"type":"array","items":{"type":"string","maxLength":40}})", R"({"enum":["red","green","blue",null]})",
                               R"({"type":"object","properties":{"id":{"type":"string","format":"uuid"},"size":{"type":"integer"}},"required":["id"],"additionalProperties":false})",
                               R"({"anyOf":[{"type":"string","format":"date"},{"type":"null"}]})"};
  std::string properties, required;
  for (int i = 0; i < 200; ++i) {
    const std::string name = "\"property_" + std::to_string(i) + "\"";
    properties += (i > 0 ? "," : "") + name + ":" + types[i % 8];
    if (i % 2 == 0) required += (i > 0 ? "," : "") + name;
  }
  return R"({"kind":"json_schema","schema":{"type":"object","properties":{)" + properties + R"(},"required":[)" + required + R"(],"additionalProperties":false}})";
}

std::vector<std::pair<std::string, std::string>> cases() {
  return {
      {"json_object", R"({"kind":"json_schema","schema":{"type":"object"}})"},
      {"person", R"({"kind":"json_schema","schema":{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},"emails":{"type":"array","items":{"type":"string","format":"email"}},"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string","maxLength":80}},"required":["street","city"],"additionalProperties":false}},"required":["name","age","emails","address"],"additionalProperties":false}})"},
      {"200 properties", large_schema()},
      {"short strings", R"({"kind":"json_schema","schema":{"type":"array","minItems":1000,"items":{"type":"string","maxLength":12}}})"},
      {"regex", R"({"kind":"regex","pattern":"[A-Z][a-z]+( [A-Z][a-z]+){1,20}, \\d{4}-\\d{2}-\\d{2}"})"},
      {"lark", R"({"kind":"lark","grammar":"start: expr\nexpr: term ((\"+\" | \"-\") term)*\nterm: factor ((\"*\" | \"/\") factor)*\nfactor: NUMBER | NAME \"(\" expr \")\" | \"(\" expr \")\"\nNUMBER: /[0-9]+(\\.[0-9]+)?/\nNAME: /[a-z]+/"})"},
  };
}

double at(std::vector<double>& sorted, double share) {
  return sorted.empty() ? 0 : sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * static_cast<double>(sorted.size())))];
}

struct Walk {
  std::vector<double> mask_us, accept_us;
};

void walk(const grammar::Vocabulary& vocabulary, grammar::Matcher matcher, Rng& rng, int max_tokens, Walk& out) {
  std::vector<uint32_t> bits(vocabulary.mask_words());
  std::vector<TokenId> allowed;
  for (int i = 0; i < max_tokens && !matcher.is_complete(); ++i) {
    double begin = process_cpu_seconds();
    const bool ok = matcher.mask(bits).has_value();
    out.mask_us.push_back((process_cpu_seconds() - begin) * 1e6);
    if (!ok) return;
    allowed.clear();
    for (TokenId t = 0; t < vocabulary.size(); ++t) {
      if ((bits[static_cast<size_t>(t) / 32] >> (t % 32) & 1) != 0) allowed.push_back(t);
    }
    const TokenId token = allowed[rng.below(allowed.size())];
    begin = process_cpu_seconds();
    const bool taken = matcher.accept(token).has_value();
    out.accept_us.push_back((process_cpu_seconds() - begin) * 1e6);
    if (!taken) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string path;
  int max_tokens = 200, walks = 20;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--tokens" && i + 1 < argc) max_tokens = std::atoi(argv[++i]);
    else if (arg == "--walks" && i + 1 < argc) walks = std::atoi(argv[++i]);
    else path = arg;
  }
  if (path.empty()) {
    std::fprintf(stderr, "usage: grammar_masks TOKENIZER.json [--tokens N] [--walks N]\n");
    return 2;
  }
  const auto tokenizer = tokenizer::Tokenizer::from_json(read_file(path), "", path);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  const TokenId end = (*tokenizer)->eos_id().value_or(0);  // which it is changes no time
  const int32_t size = ((*tokenizer)->vocab_size() + 127) / 128 * 128;
  double begin = process_cpu_seconds();
  const auto vocabulary = grammar::Vocabulary::build(**tokenizer, size, {&end, 1});
  if (!vocabulary) {
    std::fprintf(stderr, "%s\n", vocabulary.error().message.c_str());
    return 1;
  }
  std::printf("vocabulary of %d tokens: %.0f ms\n", size, (process_cpu_seconds() - begin) * 1e3);
  std::printf("| constraint | compile ms | matcher us | masks | mask p50 us | p99 us | max us | first walk p50 us | p99 us | accept p50 us | p99 us |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const auto& [name, spec] : cases()) {
    std::vector<double> compile_ms, matcher_us;
    std::shared_ptr<const grammar::Grammar> compiled;
    for (int round = 0; round < 5; ++round) {
      begin = process_cpu_seconds();
      auto made = grammar::Grammar::compile(**vocabulary, spec);
      compile_ms.push_back((process_cpu_seconds() - begin) * 1e3);
      if (!made) {
        std::fprintf(stderr, "%s: %s\n", name.c_str(), made.error().message.c_str());
        return 1;
      }
      compiled = std::move(made).value();
    }
    Walk first, all;
    Rng rng(1);
    for (int i = 0; i < walks; ++i) {
      begin = process_cpu_seconds();
      grammar::Matcher matcher = compiled->matcher().value();
      matcher_us.push_back((process_cpu_seconds() - begin) * 1e6);
      walk(**vocabulary, std::move(matcher), rng, max_tokens, i == 0 ? first : all);
    }
    for (auto* times : {&first.mask_us, &all.mask_us, &all.accept_us}) std::sort(times->begin(), times->end());
    std::printf("| %s | %.2f | %.0f | %zu | %.1f | %.0f | %.0f | %.1f | %.0f | %.1f | %.0f |\n", name.c_str(), bench::median(compile_ms), bench::median(matcher_us),
                all.mask_us.size(), at(all.mask_us, 0.5), at(all.mask_us, 0.99), at(all.mask_us, 1), at(first.mask_us, 0.5), at(first.mask_us, 0.99),
                at(all.accept_us, 0.5), at(all.accept_us, 0.99));
  }
  return 0;
}
