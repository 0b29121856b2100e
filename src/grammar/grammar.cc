#include "grammar/grammar.h"

#include "grammar/rust_error.h"

namespace deepinfer::grammar {

void Matcher::Free::operator()(DiMatcher* raw) const { di_matcher_free(raw); }

Result<> Matcher::mask(std::span<uint32_t> bits) {
  RustBuffer error;
  return to_result(di_matcher_mask(raw_.get(), bits.data(), &error.raw), error);
}

Result<> Matcher::accept(TokenId token) {
  RustBuffer error;
  return to_result(di_matcher_accept(raw_.get(), static_cast<uint32_t>(token), &error.raw), error);
}

Result<> Matcher::rollback(int32_t count) {
  RustBuffer error;
  return to_result(di_matcher_rollback(raw_.get(), static_cast<uint32_t>(count), &error.raw), error);
}

bool Matcher::is_accepting() const { return di_matcher_is_accepting(raw_.get()) != 0; }

bool Matcher::is_complete() const { return di_matcher_is_complete(raw_.get()) != 0; }

Result<std::shared_ptr<const Grammar>> Grammar::compile(const Vocabulary& vocabulary, std::string_view spec) {
  DiGrammar* raw = nullptr;
  RustBuffer error;
  const int32_t status = di_grammar_new(vocabulary.raw_, reinterpret_cast<const uint8_t*>(spec.data()), spec.size(), &raw, &error.raw);
  DI_TRY(to_result(status, error));
  return std::shared_ptr<const Grammar>(new Grammar(vocabulary, raw));
}

Grammar::~Grammar() { di_grammar_free(raw_); }

Result<Matcher> Grammar::matcher() const {
  DiMatcher* raw = nullptr;
  RustBuffer error;
  DI_TRY(to_result(di_matcher_new(vocabulary_.raw_, raw_, &raw, &error.raw), error));
  return Matcher(raw);
}

}  // namespace deepinfer::grammar
