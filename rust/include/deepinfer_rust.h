// The C interface of rust/: chat templates of foreign models, and constraints on generated text. Texts are (pointer, length), UTF-8, and
// borrowed for the call. A status of 0 is success. Every DiBuffer that a call fills goes back with di_buffer_free(), whatever the status.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DiTemplate DiTemplate;

typedef struct DiBuffer {
  uint8_t* data;
  size_t size;
  size_t capacity;
} DiBuffer;

enum {
  DI_TEMPLATE_OK = 0,
  DI_TEMPLATE_INVALID = 1,   /* syntax, or something that is not supported; the message names the line */
  DI_TEMPLATE_REFUSED = 2,   /* the template's own raise_exception(); the message is its text */
  DI_TEMPLATE_FAILED = 3,    /* cannot be applied to this conversation */
  DI_TEMPLATE_LIMIT = 4,     /* instructions, bytes or depth */
  DI_TEMPLATE_AMBIGUOUS = 5, /* control tokens and the conversation's text cannot be told apart */
  DI_TEMPLATE_INTERNAL = 6   /* a fault of this library that was contained */
};

/* options: {"spellings": [control tokens], "mode": "tokens" | "characters", "variables": {"bos_token": "<s>", ...}}.
 * mode "characters" follows each character of the template, for those that compose control tokens from pieces.
 * On success *out is set, else *error to the message. */
int32_t di_template_new(const uint8_t* source, size_t source_size, const uint8_t* options, size_t options_size, DiTemplate** out, DiBuffer* error);

/* context: the template's variables, a JSON object. now_unix_s: for strftime_now(). *out: on success records of
 * (int32 token, an index of "spellings" or -1 for text; uint32 size; bytes), little-endian; else the message.
 * Thread-safe. */
int32_t di_template_render(const DiTemplate* tmpl, const uint8_t* context, size_t context_size, int64_t now_unix_s, DiBuffer* out);

void di_template_free(DiTemplate* tmpl);
void di_buffer_free(DiBuffer buffer);

typedef struct DiVocabulary DiVocabulary;
typedef struct DiGrammar DiGrammar;
typedef struct DiMatcher DiMatcher;

enum {
  DI_GRAMMAR_OK = 0,
  DI_GRAMMAR_INVALID = 1, /* a constraint that cannot be honoured, or too large; the message says where and why */
  DI_GRAMMAR_FAILED = 2,  /* a matcher that gave up: a token that its mask forbids, or too much work for one mask */
  DI_GRAMMAR_INTERNAL = 3 /* a fault of this library that was contained */
};

/* All the calls below set *error to the message when they return another status than DI_GRAMMAR_OK. */

/* Token i is bytes[ends[i - 1], ends[i]); empty: it is never allowed. special[i] != 0: a control token, which no text can be; grammars
 * name it by number, <[i]>. end_tokens: what may follow where a grammar may end; at least one. */
int32_t di_vocabulary_new(const uint8_t* bytes, const uint64_t* ends, const uint8_t* special, uint32_t num_tokens, const uint32_t* end_tokens,
                          uint32_t num_end_tokens, DiVocabulary** out, DiBuffer* error);
void di_vocabulary_free(DiVocabulary* vocabulary);

/* spec: one of
 *   {"kind": "json_schema", "schema": {...}, "compact": false}
 *   {"kind": "regex", "pattern": "..."}                       of the whole text
 *   {"kind": "choice", "choices": ["...", ...]}
 *   {"kind": "lark", "grammar": "start: ...", "schemas": [{"name": "s0", "schema": {...}, "label": "..."}], "compact": false}
 * A Lark grammar names a schema as @s0. compact: JSON without the one space that may else stand behind ',' and ':'.
 * Work and size are bounded. Thread-safe. */
int32_t di_grammar_new(const DiVocabulary* vocabulary, const uint8_t* spec, size_t spec_size, DiGrammar** out, DiBuffer* error);
void di_grammar_free(DiGrammar* grammar);

/* A matcher stands at the grammar's begin. It is independent of the grammar and of other matchers, but needs the vocabulary. One
 * thread at a time. Making one is thread-safe. */
int32_t di_matcher_new(const DiVocabulary* vocabulary, const DiGrammar* grammar, DiMatcher** out, DiBuffer* error);
/* bits: ceil(num_tokens / 32) words; bit t % 32 of word t / 32 says whether token t may come next. */
int32_t di_matcher_mask(DiMatcher* matcher, uint32_t* bits, DiBuffer* error);
int32_t di_matcher_accept(DiMatcher* matcher, uint32_t token, DiBuffer* error);
/* Takes back the last `count` accepted tokens. */
int32_t di_matcher_rollback(DiMatcher* matcher, uint32_t count, DiBuffer* error);
int32_t di_matcher_is_accepting(DiMatcher* matcher);      /* 1: the text so far satisfies the constraint */
int32_t di_matcher_is_complete(const DiMatcher* matcher); /* 1: and nothing can follow */
void di_matcher_free(DiMatcher* matcher);

#ifdef __cplusplus
}
#endif
