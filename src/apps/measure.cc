#include "apps/measure.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "base/clock.h"
#include "base/median.h"
#include "base/rng.h"
#include "io/disk_rate.h"
#include "kv/arena.h"

namespace deepinfer::apps {
namespace {

using model::BlockId;

// The steps that compute positions [from, to) of a prompt: [start, to), the replay before a cached beginning included.
struct PromptSteps {
  int32_t start, from, to, decoder_start, max_rows;
  PromptSteps(int32_t from_, int32_t to_, bool narrow, int32_t replay_tokens, int32_t max_rows_)
      : start(std::max(0, from_ - replay_tokens)), from(from_), to(to_), decoder_start(narrow && replay_tokens > 0 ? std::max(0, to_ - replay_tokens) : 0), max_rows(max_rows_) {}

  template <typename F>  // (first position, rows)
  void each(F f) const {
    for (int32_t at = start; at < to; at += max_rows) f(at, std::min(max_rows, to - at));
  }
};

// Sequences side by side in one arena (first all blocks, then a state each), and the steps that fill them. Models with windows are run as
// an engine runs them by default: only the end of a prompt enters the decoder layers, and a cached beginning is replayed within bounds.
class Bench {
 public:
  Bench(model::Model& model, int32_t num_sequences, int32_t max_tokens, int32_t max_rows, std::byte* arena, Workers& workers)
      : model_(model), workers_(workers), arena_(arena), max_rows_(max_rows), tokens_(static_cast<size_t>(max_tokens)) {
    const int32_t block_tokens = model.kv_layout().block_tokens;
    blocks_per_sequence_ = (max_tokens + block_tokens - 1) / block_tokens;
    blocks_.resize(static_cast<size_t>(blocks_per_sequence_) * static_cast<size_t>(num_sequences));
    std::iota(blocks_.begin(), blocks_.end(), 0);
    for (size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = static_cast<TokenId>(mix(i) % static_cast<uint64_t>(model.info().vocab_size));
    logits_.resize(static_cast<size_t>(num_sequences) * static_cast<size_t>(model.info().vocab_size));
  }

  // Tokens [from, to) of one sequence, in chunks, of which those before are cached; the last row's logits, as an answer needs them.
  Result<> prefill(int32_t sequence, int32_t from, int32_t to, bool narrow) {
    Result<> result;
    const PromptSteps steps(from, to, narrow, model_.kv_layout().replay_tokens, max_rows_);
    steps.each([&](int32_t at, int32_t rows) {
      if (!result) return;
      model::SequenceRows one = rows_of(sequence, 0, rows, at);
      one.window_start = steps.start;
      one.global_start = steps.from;
      one.decoder_start = steps.decoder_start;
      const int32_t last = rows - 1;
      const bool wanted = at + rows == to;
      result = model_.forward({.tokens = std::span(tokens_).subspan(static_cast<size_t>(at), static_cast<size_t>(rows)), .sequences = {&one, 1},
                               .logit_rows = {&last, wanted ? size_t{1} : size_t{0}}}, arena_, logits_.data(), workers_);
    });
    return result;
  }

  // One token of each sequence at position `at`, after a prompt of `context` tokens.
  Result<> decode(int32_t num_sequences, int32_t context, int32_t at) {
    step_tokens_.assign(static_cast<size_t>(num_sequences), tokens_[static_cast<size_t>(at)]);
    rows_.clear();
    logit_rows_.clear();
    for (int32_t s = 0; s < num_sequences; ++s) {
      rows_.push_back(rows_of(s, s, 1, at));
      rows_.back().decoder_start = std::max(0, context - model_.kv_layout().replay_tokens);
      logit_rows_.push_back(s);
    }
    return model_.forward({.tokens = step_tokens_, .sequences = rows_, .logit_rows = logit_rows_}, arena_, logits_.data(), workers_);
  }

  static int64_t arena_bytes(const model::KvLayout& layout, int64_t num_sequences, int64_t max_tokens) {
    return num_sequences * ((max_tokens + layout.block_tokens - 1) / layout.block_tokens * layout.block_bytes + layout.state_bytes);
  }

 private:
  model::SequenceRows rows_of(int32_t sequence, int32_t first_row, int32_t num_rows, int32_t start) const {
    const model::KvLayout& layout = model_.kv_layout();
    model::SequenceRows rows{.first_row = first_row, .num_rows = num_rows, .start = start, .block_table = table(sequence)};
    if (layout.state_bytes == 0) return rows;
    rows.state = arena_ + static_cast<int64_t>(blocks_.size()) * layout.block_bytes + sequence * layout.state_bytes;
    rows.previous = std::span(tokens_).first(static_cast<size_t>(start));
    return rows;
  }
  static uint64_t mix(uint64_t i) { return (i + 1) * 0x9e3779b97f4a7c15u >> 33; }
  std::span<const BlockId> table(int32_t sequence) const {
    const auto length = static_cast<size_t>(blocks_per_sequence_);
    return std::span(blocks_).subspan(static_cast<size_t>(sequence) * length, length);
  }

  model::Model& model_;
  Workers& workers_;
  std::byte* arena_;
  int32_t max_rows_, blocks_per_sequence_ = 0;
  std::vector<TokenId> tokens_, step_tokens_;
  std::vector<BlockId> blocks_;
  std::vector<float> logits_;
  std::vector<model::SequenceRows> rows_;
  std::vector<int32_t> logit_rows_;
};

int32_t tokens_of(const BenchCase& what) { return what.context + what.num_tokens; }

Result<double> run_once(Bench& bench, const BenchCase& what, const Clock& clock) {
  const int64_t begin = clock.now_ns();
  if (what.kind == BenchCase::Kind::kPrefill) {
    DI_TRY(bench.prefill(0, what.context, what.context + what.num_tokens, what.narrow));
  } else {
    for (int32_t i = 0; i < what.num_tokens; ++i) {
      DI_TRY(bench.decode(what.num_sequences, what.context, what.context + i));
    }
  }
  return static_cast<double>(clock.now_ns() - begin) / 1e9;
}

}  // namespace

std::string BenchCase::name() const {
  if (kind == Kind::kPrefill) return fmt::format("prefill {}{}{}", num_tokens, context > 0 ? fmt::format(" at {}", context) : "", narrow ? "" : " without narrowing");
  if (num_sequences > 1) return fmt::format("decode of {}", num_sequences);
  return fmt::format("decode at {}", context);
}

std::vector<BenchCase> standard_cases(int32_t max_context, const model::KvLayout& layout) {
  using Kind = BenchCase::Kind;
  std::vector<BenchCase> cases{{Kind::kPrefill, 1, 0, 512}, {Kind::kPrefill, 1, 0, 2048}};
  if (layout.state_bytes > 0) cases.push_back({Kind::kPrefill, 1, 0, 2048, false});
  cases.insert(cases.end(), {{Kind::kPrefill, 1, 2304, 256}, {Kind::kDecode, 1, 0, 64}, {Kind::kDecode, 1, 4096, 32}});
  for (const int32_t n : {2, 4, 8, 16}) cases.push_back({Kind::kDecode, n, 128, 32});
  std::erase_if(cases, [max_context](const BenchCase& c) { return tokens_of(c) > max_context; });
  return cases;
}

double roof_seconds(const BenchCase& what, const model::Model& model, const Roof& roof, int32_t max_rows) {
  double bytes = 0, products = 0;
  bool integer = false;
  const auto add = [&](const model::StepShape& shape) {
    const model::StepCost cost = model.cost(shape);
    bytes += cost.weight_bytes + cost.state_bytes;
    products += cost.products;
    integer = cost.integer_products;
  };
  if (what.kind == BenchCase::Kind::kPrefill) {
    const PromptSteps steps(what.context, what.context + what.num_tokens, what.narrow, model.kv_layout().replay_tokens, max_rows);
    steps.each([&](int32_t at, int32_t rows) {
      const int32_t decoder_rows = std::clamp(at + rows - steps.decoder_start, 0, rows);
      add({.num_rows = rows, .num_decoder_rows = decoder_rows, .num_logit_rows = at + rows == steps.to ? 1 : 0});
    });
  } else {
    const int64_t n = what.num_sequences;
    for (int32_t i = 0; i < what.num_tokens; ++i) add({.num_rows = n, .num_decoder_rows = n, .num_logit_rows = n, .context = what.context + i});
  }
  return std::max(bytes / roof.read_model_bytes_per_s, 2 * products / (integer ? roof.int8_ops_per_s : roof.bf16_ops_per_s));
}

Result<std::vector<CaseResult>> measure(model::Model& model, const std::vector<BenchCase>& cases, const BenchOptions& options, const Roof& roof,
                                        Workers& workers) {
  int32_t max_tokens = 1, max_sequences = 1;
  for (const BenchCase& c : cases) {
    max_tokens = std::max(max_tokens, tokens_of(c));
    max_sequences = std::max(max_sequences, c.num_sequences);
  }
  model.reserve({.max_rows = options.max_rows, .max_sequences = max_sequences, .max_logit_rows = max_sequences, .max_context = max_tokens}, workers);
  DI_TRY(const kv::Arena arena, kv::Arena::map(static_cast<uint64_t>(Bench::arena_bytes(model.kv_layout(), max_sequences, max_tokens))));
  Bench bench(model, max_sequences, max_tokens, options.max_rows, arena.data(), workers);

  const SteadyClock clock;
  std::vector<CaseResult> results;
  for (const BenchCase& c : cases) {
    results.push_back({.what = c});
    // Fills the cache before the case and warms everything that it touches.
    for (int32_t s = 0; s < c.num_sequences; ++s) {
      DI_TRY(bench.prefill(s, 0, c.context, true));
    }
    if (c.kind == BenchCase::Kind::kDecode) {
      DI_TRY(bench.decode(c.num_sequences, c.context, c.context));
    } else {
      DI_TRY(bench.prefill(0, c.context, c.context + std::min(c.num_tokens, options.max_rows), true));
    }
  }
  for (int32_t round = 0; round < options.rounds; ++round)
    for (CaseResult& r : results) {
      const int64_t before = io::bytes_read_from_disk();
      DI_TRY(const double seconds, run_once(bench, r.what, clock));
      r.seconds.push_back(seconds);
      r.disk_bytes_per_s += static_cast<double>(io::bytes_read_from_disk() - before);
    }
  for (CaseResult& r : results) {
    r.median_s = median(r.seconds);
    r.disk_bytes_per_s /= std::accumulate(r.seconds.begin(), r.seconds.end(), 0.0);
    const auto [fastest, slowest] = std::minmax_element(r.seconds.begin(), r.seconds.end());
    r.spread = (*slowest - *fastest) / r.median_s;
    r.tokens_per_s = static_cast<double>(r.what.num_tokens) * r.what.num_sequences / r.median_s;
    r.roof_share = roof_seconds(r.what, model, roof, options.max_rows) / r.median_s;
  }
  return results;
}

}  // namespace deepinfer::apps
