// MB/s of an audit next to that of simdjson alone on the same file: what reading, rendering, tokenising and hashing add to parsing.
//
//   make_agent_log.py 300 > agents.jsonl
//   audit_bench agents.jsonl models/deepseek/tokenizer.json [THREADS]
#include <simdjson.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>

#include "io/mapped_file.h"
#include "recipe/dialect.h"
#include "trace/audit.h"

using namespace deepinfer;

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Every line into simdjson's DOM, nothing more.
double parse_seconds(std::string text) {
  text.append(simdjson::SIMDJSON_PADDING, ' ');
  const auto start = std::chrono::steady_clock::now();
  simdjson::dom::parser parser;
  size_t values = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    simdjson::dom::element value;
    values += parser.parse(text.data() + at, end - at, false).get(value) == simdjson::SUCCESS;
    at = end + 1;
  }
  if (values == 0) std::puts("no JSON in it");
  return seconds_since(start);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::puts("usage: audit_bench LOG TOKENIZER.json [THREADS]");
    return 2;
  }
  const auto text = io::read_small_file(argv[1], size_t{8} << 30);
  const auto json = io::read_small_file(argv[2], 64 << 20);
  if (!text || !json) {
    fmt::print("{}\n", (!text ? text.error() : json.error()).message);
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
  const double megabytes = static_cast<double>(text.value().size()) / 1e6;
  const double parse = parse_seconds(text.value());
  trace::AuditOptions options;
  options.num_threads = argc > 3 ? std::atoi(argv[3]) : 1;
  trace::Audit audit(options, vocabulary.value().get(), renderer.value().get());
  const auto start = std::chrono::steady_clock::now();
  audit.read({argv[1]});
  const double read = seconds_since(start);
  fmt::print("{:.0f} MB, {} requests, {:.1f} % of the text tokenised\n", megabytes, audit.trace() != nullptr ? audit.trace()->requests.size() : 0,
             100.0 * static_cast<double>(audit.input().encoded_bytes) / static_cast<double>(std::max<uint64_t>(1, audit.input().text_bytes)));
  fmt::print("simdjson alone {:.0f} MB/s; audit {:.0f} MB/s with {} threads: {:.2f} of it\n", megabytes / parse, megabytes / read, options.num_threads, parse / read);
  return 0;
}
