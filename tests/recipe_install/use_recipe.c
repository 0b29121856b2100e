/* What a program in C makes of the installed library: a prompt's ids on the first line, then the answer to scripted tokens. */
#include <deepinfer_recipe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static di_text read_file(const char* path) {
  di_text out = {NULL, 0};
  FILE* file = fopen(path, "rb");
  if (file == NULL) return out;
  fseek(file, 0, SEEK_END);
  out.size = (size_t)ftell(file);
  rewind(file);
  char* data = malloc(out.size + 1);
  out.size = fread(data, 1, out.size, file);
  data[out.size] = 0;
  fclose(file);
  out.data = data;
  return out;
}

static int failed(const char* what, char* error) {
  fprintf(stderr, "%s: %s\n", what, error != NULL ? error : "?");
  di_error_free(error);
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const di_text none = {NULL, 0};
  const di_text tokenizer = read_file(argv[1]);
  char* error = NULL;
  di_recipe* recipe = NULL;
  if (di_recipe_open(tokenizer, none, NULL, none, &recipe, &error) != DI_OK) return failed("open", error);
  printf("%s\n", di_recipe_dialect(recipe));

  const char* body = "{\"model\": \"m\", \"thinking\": {\"type\": \"disabled\"}, \"messages\": [{\"role\": \"user\", \"content\": \"Hello <think>\"}]}";
  di_request* request = NULL;
  if (di_request_parse(recipe, DI_CHAT, (di_text){body, strlen(body)}, &request, &error) != DI_OK) return failed("parse", error);
  size_t num_ids = 0;
  const int32_t* ids = di_request_ids(request, &num_ids);
  for (size_t i = 0; i < num_ids; ++i) printf("%s%d", i > 0 ? " " : "", ids[i]);
  printf("\n%s\n%s\n", di_request_marked_text(request).data, di_request_json(request).data);

  const char* bad = "{\"model\": \"m\", \"messages\": []}";
  di_request* refused = NULL;
  if (di_request_parse(recipe, DI_CHAT, (di_text){bad, strlen(bad)}, &refused, &error) != DI_INVALID_ARGUMENT || error == NULL) return 1;
  di_error_free(error);

  const char* text = "Hi there.";
  int32_t* sampled = NULL;
  size_t num_sampled = 0;
  if (di_recipe_encode(recipe, (di_text){text, strlen(text)}, &sampled, &num_sampled) != DI_OK) return 1;
  const di_answer_info info = {"chatcmpl-1", "m", 1700000000, 0};
  di_answer* answer = NULL;
  if (di_answer_begin(recipe, request, &info, &answer) != DI_OK) return 1;
  for (size_t i = 0; i < num_sampled; ++i) {
    const di_token token = {sampled[i], DI_NOT_FINISHED, (int32_t)num_ids, 0, (int32_t)i + 1};
    if (di_answer_push(answer, token) != DI_OK) return 1;
  }
  const di_token end = {1, DI_STOP, (int32_t)num_ids, 0, (int32_t)num_sampled + 1};
  if (di_answer_push(answer, end) != DI_OK) return 1;
  printf("%s\n%s\n", di_answer_events(answer).data, di_answer_body(answer).data);

  // A stream that ends in a fault.
  const di_answer_info streamed = {"chatcmpl-2", "m", 1700000000, 1};
  di_answer* broken = NULL;
  if (di_answer_begin(recipe, request, &streamed, &broken) != DI_OK) return 1;
  const di_token fault = {-1, DI_ERROR, (int32_t)num_ids, 0, 0};
  if (di_answer_push(broken, (di_token){sampled[0], DI_NOT_FINISHED, (int32_t)num_ids, 0, 1}) != DI_OK) return 1;
  if (di_answer_push(broken, fault) != DI_OK) return 1;
  for (const char* c = di_answer_frames(broken).data; *c != 0; ++c) putchar(*c == '\n' ? ' ' : *c);
  printf("\n");

  di_answer_free(broken);
  di_answer_free(answer);
  di_ids_free(sampled);
  di_request_free(request);
  di_recipe_free(recipe);
  free((void*)tokenizer.data);
  return 0;
}
