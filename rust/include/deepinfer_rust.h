// The C interface of rust/: chat templates of foreign models. Texts are (pointer, length), UTF-8, and borrowed for the call. A status
// of 0 is success. Every DiBuffer that a call fills goes back with di_buffer_free(), whatever the status.
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

#ifdef __cplusplus
}
#endif
