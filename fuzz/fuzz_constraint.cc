// LIBS: di_recipe di_grammar
//
// Hostile constraints. Input: a byte of options, then a constraint's description, or the body of a request in one of the protocols that asks for
// one. What compiles is walked at random, from a seed that the input gives: every mask allows something, and no control token unless a grammar
// can name it; what it allows is accepted, and taking it back leads to the same mask; where the text may end, a schema's text is JSON; text
// that a mask forbids is refused. What is refused is refused in words.
//
// The Rust library is instrumented, too, where DI_RUST_DIR is built for it (CMakeLists.txt).
#include <algorithm>
#include <boost/json/parse.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "grammar/fake_vocabulary.h"
#include "grammar/grammar.h"
#include "recipe/constraint.h"
#include "recipe/dialect.h"
#include "recipe/encode_request.h"
#include "recipe/json_reader.h"

using namespace deepinfer;

namespace {

constexpr int kMaxSteps = 48;

struct World {
  // What DeepSeek's dialects need beside pieces of text.
  const grammar::FakeVocabulary tokenizer{"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "</think>", "｜DSML｜", "<｜User｜>", "<｜Assistant｜>", "<｜System｜>",
                                          "<｜latest_reminder｜>", "<｜deepseek_image｜>"};
  const std::unique_ptr<const grammar::Vocabulary> vocabulary = build();

  std::unique_ptr<const grammar::Vocabulary> build() const {
    const TokenId end = tokenizer.end();
    return grammar::Vocabulary::build(tokenizer, tokenizer.vocab_size(), {&end, 1}).value();
  }
};

// Empty: the request is refused, or asks for none.
std::string spec_of_request(std::string body, uint8_t options, const tokenizer::Tokenizer& tokenizer) {
  const auto protocol = static_cast<recipe::Protocol>(options % 4);
  const recipe::Dialect dialect = options / 4 % 2 == 0 ? recipe::Dialect::kV4 : recipe::Dialect::kV41;
  const auto json = recipe::read_json_object(std::move(body));
  if (!json) return "";
  recipe::RequestContext context;
  context.options.vocab_size = tokenizer.vocab_size();
  context.options.dialect = dialect;
  recipe::Problems problems;
  const auto request = recipe::parse_request(protocol, *json, context, problems);
  if (!request) return "";
  const auto renderer = recipe::make_dialect_renderer(dialect, tokenizer);
  CHECK(renderer.has_value());
  const auto encoded = recipe::encode_request(*request, {.tokenizer = tokenizer, .renderer = renderer->get()});
  if (!encoded) return "";
  const auto schemas = options / 8 % 2 == 0 ? recipe::SchemasOf::kForcedTools : recipe::SchemasOf::kStrictTools;
  const Result<Constraint> constraint = recipe::make_constraint(*request, encoded->prompt.syntax, dialect, tokenizer, schemas);
  if (constraint) return constraint->spec;
  CHECK(!constraint.error().message.empty());
  return "";
}

class Walk {
 public:
  Walk(const World& world, std::string_view spec, uint64_t seed)
      : tokenizer_(world.tokenizer),
        vocabulary_(*world.vocabulary),
        is_json_(spec.starts_with(R"({"kind":"json_schema",)")),
        names_tokens_(spec.find('<') != std::string_view::npos || spec.find("\\u003") != std::string_view::npos),
        rng_(seed) {}

  void run(const grammar::Grammar& grammar) {
    grammar::Matcher matcher = grammar.matcher().value();
    std::vector<uint32_t> bits(vocabulary_.mask_words()), again(vocabulary_.mask_words());
    for (int step = 0; step < kMaxSteps && !matcher.is_complete(); ++step) {
      if (is_json_ && matcher.is_accepting()) check_json();
      if (!masked(matcher, bits)) return;
      const TokenId token = pick(bits);
      if (token == tokenizer_.end()) return;
      if (!accepted(matcher, token)) return;
      if (rng_.below(4) != 0) continue;
      CHECK(matcher.rollback(1).has_value());
      text_.resize(text_.size() - tokenizer_.token_bytes(token).size());
      if (!masked(matcher, again)) return;
      CHECK(again == bits);
      if (!accepted(matcher, token)) return;
    }
    refuse_forbidden(matcher);
  }

 private:
  static bool is_allowed(std::span<const uint32_t> bits, TokenId token) { return (bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0; }

  // The work may go over its bounds, which ends a sequence; anything else may not.
  bool masked(grammar::Matcher& matcher, std::vector<uint32_t>& bits) {
    const Result<> done = matcher.mask(bits);
    CHECK(done.has_value() || done.error().code == Code::kResourceExhausted);
    return done.has_value();
  }

  bool accepted(grammar::Matcher& matcher, TokenId token) {
    const Result<> done = matcher.accept(token);
    if (!done && done.error().message.find("limit") == std::string::npos) {
      std::fprintf(stderr, "token %d behind \"%s\": %s\n", token, text_.c_str(), done.error().message.c_str());
      CHECK(done.has_value());
    }
    text_ += tokenizer_.token_bytes(token);
    return done.has_value();
  }

  TokenId pick(std::span<const uint32_t> bits) {
    allowed_.clear();
    for (TokenId token = 0; token < vocabulary_.size(); ++token) {
      if (is_allowed(bits, token)) allowed_.push_back(token);
    }
    CHECK(!allowed_.empty());
    const bool control = std::any_of(allowed_.begin(), allowed_.end(), [&](TokenId token) { return token > tokenizer_.end(); });
    CHECK(names_tokens_ || !control);
    return allowed_[rng_.below(allowed_.size())];
  }

  void check_json() const {
    boost::json::error_code error;
    boost::json::parse(text_, error, {}, {.max_depth = 4096});
    if (!error || error == boost::json::error::exponent_overflow) return;  // JSON has numbers that no double holds
    std::fprintf(stderr, "not JSON: %s\n", text_.c_str());
    CHECK(!error);
  }

  void refuse_forbidden(grammar::Matcher& matcher) {
    std::vector<uint32_t> bits(vocabulary_.mask_words());
    if (matcher.is_complete() || !masked(matcher, bits)) return;
    for (TokenId token = 0; token < vocabulary_.size(); ++token) {
      // Not of a byte that text cannot have, which counts for no text at all.
      if (is_allowed(bits, token) || tokenizer_.is_special(token) || tokenizer_.token_bytes(token).find('\xff') != std::string_view::npos) continue;
      const bool refused = !matcher.accept(token).has_value();
      if (!refused) std::fprintf(stderr, "forbidden, yet accepted: token %d behind \"%s\"\n", token, text_.c_str());
      CHECK(refused);
      return;  // nothing works after an error
    }
  }

  const grammar::FakeVocabulary& tokenizer_;
  const grammar::Vocabulary& vocabulary_;
  const bool is_json_, names_tokens_;
  Rng rng_;
  std::string text_;
  std::vector<TokenId> allowed_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const World world;
  if (size == 0) return 0;
  std::string spec(reinterpret_cast<const char*>(data + 1), size - 1);
  uint64_t seed = 0;
  for (const char c : spec) seed = seed * 31 + static_cast<unsigned char>(c);
  if (data[0] % 2 == 1) spec = spec_of_request(std::move(spec), data[0] / 2, world.tokenizer);
  if (spec.empty()) return 0;
  const auto grammar = grammar::Grammar::compile(*world.vocabulary, spec);
  if (!grammar) {
    CHECK(grammar.error().code == Code::kInvalidArgument);
    CHECK(!grammar.error().message.empty());
    return 0;
  }
  for (uint64_t walk = 0; walk < 2; ++walk) Walk(world, spec, seed + walk).run(**grammar);
  return 0;
}
