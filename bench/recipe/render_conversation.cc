// How long a conversation takes from its form to prompt tokens: the first time, and when it comes again with one turn more.
//
//   render_conversation TOKENIZER.json [--tokens N] [--dialect v4|v4.1] [--rounds N]
//
// Turns of an agent: questions, reasoning, answers, tool calls with JSON arguments, results of a few kilobytes; English, code and some
// Chinese. Prints one JSON object with CPU milliseconds of this thread, each the median of the rounds.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/rng.h"
#include "bench.h"
#include "read_file.h"
#include "recipe/dialect.h"
#include "recipe/token_cache.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::recipe;
using bench::median;

double now_ms() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

std::string text(Rng& rng, size_t bytes) {
  const char* const words[] = {"the",     "cache",   " and",      "returns",  "a",       "block",  "of",     "tokens", "for",    "each",  "sequence", "which",
                               "is",      "then",    "scheduled", "int",      "size_t",  "{\n  ",  "}\n",    "return ", "(x, y)", "0x1f",  " = ",      "std::move",
                               "注意力", "机制",     "，",        "。\n",     "error:",  "line",   "42",     "1.5e-3", "/src/",  "main.cc", "\n\n",    "- "};
  std::string out;
  while (out.size() < bytes) {
    out += words[rng.below(std::size(words))];
    if (rng.below(4) != 0) out += ' ';
  }
  return out;
}

void add_turn(Rng& rng, Conversation& conversation) {
  const std::string id = std::to_string(conversation.messages.size());
  conversation.messages.push_back({.role = Role::kUser, .content = text(rng, 400)});
  Message call{.role = Role::kAssistant, .content = text(rng, 200), .reasoning = text(rng, 1500)};
  call.tool_calls = {{.id = id, .name = "read_file", .arguments = "{\"path\": \"/src/" + id + ".cc\", \"lines\": [1, 200], \"note\": \"" + std::string(200, 'n') + "\"}"}};
  conversation.messages.push_back(std::move(call));
  conversation.messages.push_back({.role = Role::kTool, .content = text(rng, 6000), .tool_call_id = id});
  conversation.messages.push_back({.role = Role::kAssistant, .content = text(rng, 1200), .reasoning = text(rng, 600)});
}

}  // namespace

int main(int argc, char** argv) {
  std::string path, dialect_text = "v4.1";
  size_t num_tokens = 1'000'000;
  int rounds = 5;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--tokens" && i + 1 < argc) num_tokens = static_cast<size_t>(std::atoll(argv[++i]));
    else if (arg == "--dialect" && i + 1 < argc) dialect_text = argv[++i];
    else if (arg == "--rounds" && i + 1 < argc) rounds = std::atoi(argv[++i]);
    else path = arg;
  }
  const auto dialect = dialect_of_name(dialect_text);
  if (path.empty() || !dialect || *dialect == Dialect::kTemplate) {
    std::fprintf(stderr, "usage: render_conversation TOKENIZER.json [--tokens N] [--dialect v4|v4.1] [--rounds N]\n");
    return 2;
  }
  const auto tokenizer = tokenizer::Tokenizer::from_json(read_file(path), "", path);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  const auto renderer = make_dialect_renderer(*dialect, **tokenizer);
  if (!renderer) {
    std::fprintf(stderr, "%s\n", renderer.error().message.c_str());
    return 1;
  }
  Rng rng(1);
  Conversation conversation;
  conversation.messages.push_back({.role = Role::kSystem, .content = text(rng, 8000)});
  ToolDefinition tool{.name = "read_file", .description = text(rng, 500)};
  tool.parameters = boost::json::object{{"type", "object"}, {"properties", boost::json::object{{"path", boost::json::object{{"type", "string"}}}}}};
  conversation.tools.push_back(std::move(tool));
  size_t count = 0;
  while (count < num_tokens) {
    for (int i = 0; i < 16; ++i) add_turn(rng, conversation);
    count = prompt_tokens(*(*renderer)->render(conversation), **tokenizer).size();
  }

  std::vector<double> cold_render, cold_tokens, warm_render, warm_tokens;
  size_t bytes = 0;
  for (int round = 0; round < rounds; ++round) {
    TokenCache cache(**tokenizer);
    double begin = now_ms();
    Prompt prompt = *(*renderer)->render(conversation);
    cold_render.push_back(now_ms() - begin);
    begin = now_ms();
    cache.tokens(prompt, {});
    cold_tokens.push_back(now_ms() - begin);

    Conversation next = conversation;
    add_turn(rng, next);
    begin = now_ms();
    prompt = *(*renderer)->render(next);
    warm_render.push_back(now_ms() - begin);
    begin = now_ms();
    count = cache.tokens(prompt, {}).size();
    warm_tokens.push_back(now_ms() - begin);
    bytes = prompt_text(prompt).size();
  }
  std::printf("{\"tokens\": %zu, \"mb\": %.2f, \"cold_ms\": {\"render\": %.1f, \"tokens\": %.1f}, \"warm_ms\": {\"render\": %.1f, \"tokens\": %.1f}}\n", count,
              static_cast<double>(bytes) / 1e6, median(cold_render), median(cold_tokens), median(warm_render), median(warm_tokens));
  return 0;
}
