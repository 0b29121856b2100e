// MB/s of an audit for each second of processor time, next to roofs measured on the same file in the same run: copying it, hashing it,
// simdjson's DOM alone. Processor time, not the clock's: a busy machine changes it little.
//
//   make_agent_log.py 300 > agents.jsonl
//   audit_bench agents.jsonl models/deepseek/tokenizer.json [THREADS]
#include <simdjson.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>

#include "base/clock.h"
#include "io/mapped_file.h"
#include "recipe/dialect.h"
#include "trace/report.h"

using namespace deepinfer;

namespace {

constexpr int kRuns = 3;  // of each; the fastest counts

template <class Work>
double fastest(const Work& work) {
  double out = 1e30;
  for (int i = 0; i < kRuns; ++i) {
    const double start = process_cpu_seconds();
    work();
    out = std::min(out, process_cpu_seconds() - start);
  }
  return out;
}

// Every line into simdjson's DOM, nothing more. text: padded.
void parse(const std::string& text, size_t size) {
  simdjson::dom::parser parser;
  size_t values = 0;
  for (size_t at = 0; at < size;) {
    const size_t end = std::min(text.find('\n', at), size);
    simdjson::dom::element value;
    values += parser.parse(text.data() + at, end - at, false).get(value) == simdjson::SUCCESS;
    at = end + 1;
  }
  if (values == 0) std::puts("no JSON in it");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::puts("usage: audit_bench LOG TOKENIZER.json [THREADS]");
    return 2;
  }
  const auto log = io::read_small_file(argv[1], size_t{8} << 30);
  const auto json = io::read_small_file(argv[2], 64 << 20);
  if (!log || !json) {
    fmt::print("{}\n", (!log ? log.error() : json.error()).message);
    return 1;
  }
  const auto vocabulary = tokenizer::Tokenizer::from_json(json.value(), "", argv[2]);
  if (!vocabulary) {
    fmt::print("{}\n", vocabulary.error().message);
    return 1;
  }
  const auto renderer = recipe::make_dialect_renderer(recipe::Dialect::kV4, *vocabulary.value());
  if (!renderer) {
    fmt::print("{}\n", renderer.error().message);
    return 1;
  }
  std::string text = log.value();
  const size_t size = text.size();
  text.append(simdjson::SIMDJSON_PADDING, ' ');
  const double megabytes = static_cast<double>(size) / 1e6;
  uint64_t sink = 0;
  std::string copy(size, '\0');
  const double copying = fastest([&] { std::memcpy(copy.data(), text.data(), size); });
  const double hashing = fastest([&] { sink += XXH3_128bits(text.data(), size).low64; });
  const double parsing = fastest([&] { parse(text, size); });

  trace::AuditOptions options;
  options.num_threads = argc > 3 ? std::atoi(argv[3]) : 1;
  std::unique_ptr<trace::Audit> audit;
  const double reading = fastest([&] {
    audit = std::make_unique<trace::Audit>(options, vocabulary.value().get(), renderer.value().get());
    audit->read({argv[1]});
  });
  const double reporting = fastest([&] { sink += trace::make_report(*audit, {.tokenizer_name = "bench"}).has_value(); });
  fmt::print("{:.0f} MB, {} requests, {:.1f} % of the text tokenised, {} threads (checksum {:x})\n", megabytes, audit->trace() != nullptr ? audit->trace()->requests.size() : 0,
             100.0 * static_cast<double>(audit->input().encoded_bytes) / static_cast<double>(std::max<uint64_t>(1, audit->input().text_bytes)), options.num_threads, sink & 0xfff);
  const auto row = [&](const char* name, double seconds) { fmt::print("{:<28} {:7.0f} MB/s of a core  {:6.2f} of simdjson\n", name, megabytes / seconds, parsing / seconds); };
  row("memcpy", copying);
  row("XXH3-128", hashing);
  row("simdjson", parsing);
  row("audit: reading", reading);
  row("audit: reading and report", reading + reporting);
  return 0;
}
