// grammar/grammar.h: a compiled constraint, and matchers that walk it. What a description says: core/request.h, Constraint::spec.
//
// A mask is a bit for every token: bit t % 32 of word t / 32 says whether token t may come next. Masks, and what is refused, depend on the
// description, the vocabulary and the accepted tokens alone: the bounds on work count steps, never time. The engine of it allocates.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "core/request.h"
#include "grammar/vocabulary.h"

struct DiGrammar;
struct DiMatcher;

namespace deepinfer::grammar {

// One sequence's place in a grammar. One thread at a time.
class Matcher {
 public:
  Matcher(Matcher&&) noexcept = default;
  Matcher& operator=(Matcher&&) noexcept = default;

  // What may come next; where nothing may but the end, the end tokens. bits [Vocabulary::mask_words()].
  // Errors: kResourceExhausted (the constraint needs more work for this mask than the bounds allow). Nothing works after an error.
  Result<> mask(std::span<uint32_t> bits);
  // Errors: kResourceExhausted (the token is not in the mask, or as above).
  Result<> accept(TokenId token);
  // Takes back the last `count` accepted tokens (of a draft that was not confirmed). Errors: as above, and if there are fewer.
  Result<> rollback(int32_t count);
  // The text so far satisfies the constraint.
  bool is_accepting() const;
  // And nothing can follow but an end token.
  bool is_complete() const;

 private:
  friend class Grammar;
  struct Free {
    void operator()(DiMatcher* raw) const;
  };
  explicit Matcher(DiMatcher* raw) : raw_(raw) {}

  std::unique_ptr<DiMatcher, Free> raw_;
};

// Immutable; any thread.
class Grammar {
 public:
  // Milliseconds, more for large schemas. The vocabulary outlives the grammar and its matchers. Errors: kInvalidArgument (what cannot be
  // honoured, with keyword and JSON pointer for schemas; too large), kInternal.
  static Result<std::shared_ptr<const Grammar>> compile(const Vocabulary& vocabulary, std::string_view spec);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  // At the beginning. Errors: kInternal.
  Result<Matcher> matcher() const;

 private:
  Grammar(const Vocabulary& vocabulary, DiGrammar* raw) : vocabulary_(vocabulary), raw_(raw) {}

  const Vocabulary& vocabulary_;
  DiGrammar* const raw_;
};

}  // namespace deepinfer::grammar
