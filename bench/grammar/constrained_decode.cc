// What constraints cost in decoding: streams together, free and constrained by turns, the same number of tokens each.
//
//   constrained_decode MODEL [--streams 8] [--tokens 128] [--rounds 5] [--threads 0]
//
// Every stream has a prompt of its own and samples at temperature 1. The constraint is a list of strings of at most 12 characters,
// without an end: such streams never finish early, and go through keys' worth of structure. Prints tokens per second of both (medians)
// and the share that constraints cost; then the same by the processor time of the whole process, which other load on the machine hardly
// changes. With one thread that is the work itself, wherever it is done; with more, threads that wait for each other count as well.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "bench.h"
#include "engine/engine.h"
#include "engine/loaded_model.h"

namespace {

using namespace deepinfer;
using bench::seconds;

constexpr std::string_view kSpec =
    R"({"kind":"json_schema","schema":{"type":"array","minItems":100000,"items":{"type":"object","properties":{"name":{"type":"string","maxLength":12},"n":{"type":"integer"}},"required":["name","n"],"additionalProperties":false}}})";

class Counter final : public EventSink {
 public:
  void on_event(const TokenEvent& event) override {
    tokens += event.has_token;
    if (!event.finished) return;
    failed = *event.finished == FinishReason::kError;
    ended = true;
    ended.notify_all();
  }
  std::atomic<int64_t> tokens = 0;
  std::atomic<bool> ended = false, failed = false;
};

// Tokens per second, of the clock and of processor time.
struct Rate {
  double wall, cpu;
};

Rate decode(engine::Engine& engine, int streams, int tokens, bool constrained, uint64_t round) {
  std::vector<std::shared_ptr<Counter>> sinks;
  const double begin = seconds(), cpu_begin = process_cpu_seconds();
  for (int s = 0; s < streams; ++s) {
    Request request{.prompt = {}, .constraint = {.spec = constrained ? std::string(kSpec) : std::string()}};
    for (int i = 0; i < 8; ++i) request.prompt.push_back(static_cast<TokenId>((100 + s * 7 + i * 13 + static_cast<int>(round)) % 1000));
    request.sampling = {.temperature = 1, .seed = round * 100 + static_cast<uint64_t>(s), .max_tokens = tokens, .ignore_eos = true};
    sinks.push_back(std::make_shared<Counter>());
    if (const auto id = engine.submit(std::move(request), sinks.back()); !id) {
      std::fprintf(stderr, "%s\n", id.error().message.c_str());
      std::exit(1);
    }
  }
  int64_t total = 0;
  for (const auto& sink : sinks) {
    sink->ended.wait(false);
    total += sink->tokens;
    if (sink->failed || sink->tokens != tokens) std::fprintf(stderr, "a stream ended after %ld tokens\n", static_cast<long>(sink->tokens));
  }
  return {static_cast<double>(total) / (seconds() - begin), static_cast<double>(total) / (process_cpu_seconds() - cpu_begin)};
}

}  // namespace

int main(int argc, char** argv) {
  std::string path;
  int streams = 8, tokens = 128, rounds = 5, threads = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--streams" && i + 1 < argc) streams = std::atoi(argv[++i]);
    else if (arg == "--tokens" && i + 1 < argc) tokens = std::atoi(argv[++i]);
    else if (arg == "--rounds" && i + 1 < argc) rounds = std::atoi(argv[++i]);
    else if (arg == "--threads" && i + 1 < argc) threads = std::atoi(argv[++i]);
    else path = arg;
  }
  if (path.empty()) {
    std::fprintf(stderr, "usage: constrained_decode MODEL [--streams 8] [--tokens 128] [--rounds 5] [--threads 0]\n");
    return 2;
  }
  const auto workers = Workers::create(threads);
  auto open = engine::open_model(path);
  if (!open) {
    std::fprintf(stderr, "%s\n", open.error().message.c_str());
    return 1;
  }
  auto loaded = engine::load_weights(std::move(*open), {}, *workers);
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return 1;
  }
  grammar::GrammarCache grammars(*loaded->text.tokenizer, loaded->model->info().vocab_size, loaded->card.stop_token_ids);
  const SteadyClock clock;
  engine::EngineOptions options{.card = loaded->card, .kv_bytes = uint64_t{256} << 20, .max_num_sequences = streams, .grammars = &grammars};
  const auto engine = engine::Engine::start(std::move(loaded->model), *workers, clock, std::move(options)).value();
  std::vector<double> free, constrained, free_cpu, constrained_cpu;
  for (int round = 0; round <= rounds; ++round) {  // the first warms up
    const Rate a = decode(*engine, streams, tokens, false, static_cast<uint64_t>(round)), b = decode(*engine, streams, tokens, true, static_cast<uint64_t>(round));
    if (round == 0) continue;
    free.push_back(a.wall);
    constrained.push_back(b.wall);
    free_cpu.push_back(a.cpu);
    constrained_cpu.push_back(b.cpu);
  }
  std::printf("%d streams of %d tokens, %d threads\n", streams, tokens, workers->size());
  const auto print = [](const char* what, double f, double c) { std::printf("%s: free %.1f tokens/s, constrained %.1f tokens/s, cost %.1f %%\n", what, f, c, (1 - c / f) * 100); };
  print("clock", bench::median(free), bench::median(constrained));
  print("processor time", bench::median(free_cpu), bench::median(constrained_cpu));
  return 0;
}
