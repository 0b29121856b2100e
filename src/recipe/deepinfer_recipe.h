// The recipe layer for other languages: requests of the chat protocols to prompt tokens, sampled tokens to events, to streams and to whole
// answers. Plain C, no globals, no input or output of its own. Part of libdeepinfer_recipe; the C++ interface is recipe/*.h.
//
// Ownership: what a function gives through an `out` pointer is the caller's and goes back through the matching _free; a di_text that is
// returned lives until the next call with the same object, unless said otherwise. Text is UTF-8 with its length; it also ends in a zero.
// Threads: a di_recipe and a di_request never change and may be used by any number of threads; a di_answer by one at a time.
// Errors: a status other than DI_OK; `*error` is then a sentence (free it with di_error_free), and `out` stays untouched.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DI_RECIPE_VERSION 1 // of this interface; raised when it changes

typedef enum {
  DI_OK = 0,
  DI_INVALID_ARGUMENT = 1, // the request is wrong, in the words that its client should read
  DI_UNSUPPORTED = 2,      // this vocabulary or dialect cannot do it
  DI_CORRUPT = 3,          // a file is not what it should be
  DI_FAILED = 4
} di_status;

typedef enum { DI_CHAT = 0, DI_COMPLETIONS = 1, DI_RESPONSES = 2, DI_MESSAGES = 3 } di_protocol;

typedef enum { // why a model stopped
  DI_NOT_FINISHED = 0,
  DI_STOP = 1, // it sampled a stop token
  DI_LENGTH = 2,
  DI_CONTEXT = 3,
  DI_CONTENT_FILTER = 4,
  DI_CANCELLED = 5,
  DI_ERROR = 6
} di_finish;

typedef struct {
  const char* data;
  size_t size;
} di_text;

typedef struct di_recipe di_recipe;   // a vocabulary and a dialect
typedef struct di_request di_request; // a client's request and the prompt that it became
typedef struct di_answer di_answer;   // the answer to one, while it is sampled

// tokenizer_json: the bytes of a tokenizer.json. config_json: of the model's config.json, or NULL. dialect: "v4-preview", "v4", "v4.1",
// "template", or NULL to pick one from the vocabulary and the configuration. chat_template: Jinja source, needed by the dialect
// "template" and by no other; NULL: none.
di_status di_recipe_open(di_text tokenizer_json, di_text config_json, const char* dialect, di_text chat_template, di_recipe** out, char** error);
void di_recipe_free(di_recipe* recipe);
const char* di_recipe_dialect(const di_recipe* recipe); // as above; lives as long as the recipe

// Text to ids and back, without any protocol. Control tokens are not recognised in text.
di_status di_recipe_encode(const di_recipe* recipe, di_text text, int32_t** out_ids, size_t* out_count);
void di_ids_free(int32_t* ids);

// A request's body to a prompt.
di_status di_request_parse(const di_recipe* recipe, di_protocol protocol, di_text body, di_request** out, char** error);
void di_request_free(di_request* request);
const int32_t* di_request_ids(const di_request* request, size_t* count); // lives as long as the request
// The prompt for people, control tokens as ⟦id spelling⟧ and a ⟦ of the text written twice; never to be tokenised. Lives as long as the request.
di_text di_request_marked_text(const di_request* request);
// All of it as JSON: "ids"; "segments" of the prompt, each with "text" and, if it is a control token or an image, its "id"; "images"; "start",
// the part that the answer begins in; "conversation", the form that requests of all protocols become (of completions: "text"); "options", how
// to sample and when to end, with "constraint", what the answer has to be. Lives as long as the request.
di_text di_request_json(const di_request* request);

typedef struct {
  const char* id;    // of the answer: "chatcmpl-…", "resp_…", "msg_…"
  const char* model; // as the answer names it
  int64_t created_unix_s;
  int stream;        // frames are wanted
} di_answer_info;

di_status di_answer_begin(const di_recipe* recipe, const di_request* request, const di_answer_info* info, di_answer** out);
void di_answer_free(di_answer* answer);

typedef struct {
  int32_t token;     // -1: none, only the end
  di_finish finish;  // the last call says why it is the last
  int32_t prompt_tokens, cached_tokens, completion_tokens; // so far
} di_token;

// The next sampled token. Afterwards di_answer_events() and di_answer_frames() hold what it made visible.
di_status di_answer_push(di_answer* answer, di_token token);
// True: nothing more can become visible (a stop string was found): end the sequence with DI_CANCELLED.
int di_answer_stopped(const di_answer* answer);
// What the last push made visible: a JSON array of ["reasoning", text], ["content", text], ["call_start", index, name],
// ["args", index, text], ["call_end", index], ["finished", reason].
di_text di_answer_events(const di_answer* answer);
// The same as server-sent events of the request's protocol; empty unless info.stream was set. DI_ERROR, and DI_CANCELLED before
// di_answer_stopped(), end them with the protocol's event for a fault.
di_text di_answer_frames(const di_answer* answer);
// After the end: the whole answer as the protocol's JSON.
di_text di_answer_body(di_answer* answer);

void di_error_free(char* error);

#ifdef __cplusplus
}
#endif
