// DeepSeek-V4.1's operations on rows at the shapes of the released model, one thread each, next to what the machine can do: attention and
// index scores as a share of its bf16 products, the rest as bytes a second (of what they read).
//
//   v41_rows_bench [--isa=NAME]
//
// The roof is looked at again before every measurement; the shares are medians over the turns.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "bench.h"
#include "kernels/block_quantize.h"
#include "kernels/hyper_connection.h"
#include "kernels/index_select.h"
#include "kernels/roof.h"
#include "kernels/sink_attention.h"
#include "kernels/v41_rows.h"

namespace deepinfer {
namespace {

using bench::median, bench::seconds;

class Bench {
 public:
  explicit Bench(Isa isa) : isa_(isa) {}
  // run() does `ops` operations on `bytes` bytes.
  template <class F>
  void measure(std::string_view name, double ops, double bytes, F run) {
    const double begin = seconds();
    run();
    const auto times = std::max<int64_t>(1, static_cast<int64_t>(0.01 / (seconds() - begin)));
    std::vector<double> took, share;
    for (int turn = 0; turn < 15; ++turn) {
      const double peak = bf16_ops_per_s(isa_, *workers_), start = seconds();
      for (int64_t i = 0; i < times; ++i) run();
      took.push_back((seconds() - start) / static_cast<double>(times));
      share.push_back(ops / took.back() / peak);
    }
    const double t = median(took);
    if (ops > 0) fmt::print("{:34} {:8.1f} us  {:6.0f} Gop/s ({:3.0f} % of bf16 products)\n", name, t * 1e6, ops / t * 1e-9, 100 * median(share));
    else fmt::print("{:34} {:8.1f} us  {:6.1f} GB/s\n", name, t * 1e6, bytes / t * 1e-9);
  }

 private:
  Isa isa_;
  std::unique_ptr<Workers> workers_ = Workers::create(1);
};

std::vector<float> numbers(int64_t n) {
  Rng rng(1);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = to_f32(to_bf16(static_cast<float>(rng.uniform() - 0.5)));
  return x;
}

// A query of a late layer: its window, then 512 selected rows as they are stored.
void attention(Bench& bench, Isa isa, KvRow::Kind window, const char* name) {
  constexpr int32_t kHeads = 64, kDim = 512, kWindow = 128, kSelected = 512;
  const auto x = numbers(int64_t{kHeads} * kDim);
  std::vector<bf16> q(x.size()), row(kDim), scratch((kSinkBlock + 1) * kDim);
  round_to_bf16(x.data(), kHeads * kDim, q.data(), isa);
  round_to_bf16(x.data(), kDim, row.data(), isa);
  std::vector<e4m3> fp8(kDim), fp4_scales(kDim / 16);
  std::vector<e8m0> fp8_scales(kDim / 32);
  std::vector<uint8_t> fp4(kDim / 2);
  quantize_fp8(x.data(), kDim, fp8.data(), fp8_scales.data(), isa);
  quantize_fp4_e4m3(x.data(), kDim, fp4.data(), fp4_scales.data(), isa);
  const KvRow in_step{KvRow::Kind::kBf16, row.data(), nullptr}, in_ring{KvRow::Kind::kFp8, fp8.data(), fp8_scales.data()};
  std::vector<KvRow> list(kWindow, window == KvRow::Kind::kBf16 ? in_step : in_ring);
  list.insert(list.end(), kSelected, {KvRow::Kind::kFp4, fp4.data(), fp4_scales.data()});
  const std::vector<float> sinks(kHeads);
  std::vector<float> out(x.size());
  const double ops = 4.0 * kHeads * kDim * static_cast<double>(list.size());
  bench.measure(name, ops, 0, [&] {
    sink_attention({.q = q.data(), .rows = list.data(), .sinks = sinks.data(), .out = out.data(), .scratch = scratch.data(), .num_heads = kHeads,
                    .head_dim = kDim, .num_rows = static_cast<int32_t>(list.size())},
                   isa);
  });
}

void index(Bench& bench, Isa isa) {
  constexpr int32_t kHeads = 32, kDim = 128, kKeys = 4096;
  const auto q = numbers(kHeads * kDim), weights = numbers(kHeads), key = numbers(int64_t{kKeys} * kDim);
  std::vector<uint8_t> codes(kKeys * kDim / 2);
  std::vector<e8m0> scales(kKeys * kDim / 32);
  quantize_fp4_e8m0(key.data(), kKeys * kDim, codes.data(), scales.data(), isa);
  std::vector<float> scores(kKeys), scratch(static_cast<size_t>(index_scratch(kHeads, kDim)));
  bench.measure("index scores, 4096 keys", 2.0 * kHeads * kDim * kKeys, 0, [&] {
    index_scores({.q = q.data(), .weights = weights.data(), .keys = codes.data(), .key_scales = scales.data(), .scores = scores.data(),
                  .scratch = scratch.data(), .num_heads = kHeads, .head_dim = kDim, .num_keys = kKeys, .same_query = false},
                 isa);
  });
  std::vector<int32_t> selected(512);
  bench.measure("the best 512 of them", 0, 4.0 * kKeys, [&] { select_top(scores, 512, selected.data(), isa); });
}

void rows(Bench& bench, Isa isa) {
  constexpr int64_t kHidden = 5120;
  const auto streams = numbers(16 * 4 * kHidden), fn = numbers(24 * 4 * kHidden), x = numbers(kHidden);
  const HyperParams p{.hidden = kHidden, .norm_eps = 1e-20f, .hc_eps = 1e-6f, .sinkhorn_iters = 20};
  const std::vector<float> base(24), scale(3, 1.0f);
  const HyperWeights w{fn.data(), base.data(), scale.data()};
  std::vector<float> m(16 * 24), mixed = streams, out(kHidden);
  std::vector<bf16> rounded(kHidden);
  for (const int64_t tokens : {1, 16})
    bench.measure(fmt::format("hyper-connection products, {} rows", tokens), 0, 4.0 * 24 * 4 * kHidden,
                  [&] { hyper_dots(p, w, streams.data(), tokens, 0, 24, m.data(), isa); });
  HyperCoefficients c{};
  bench.measure("hyper-connection coefficients", 0, 4.0 * 4 * kHidden, [&] { hyper_coefficients(p, w, streams.data(), m.data(), c, isa); });
  bench.measure("streams out", 0, 4.0 * 5 * kHidden, [&] { hyper_expand(p, c, x.data(), 0, kHidden, mixed.data(), isa); });
  const std::vector<bf16> weight(kHidden, to_bf16(1.0f));
  bench.measure("norm", 0, 6.0 * kHidden, [&] { v41_norm(x.data(), weight.data(), kHidden, 1e-20f, out.data(), isa); });
  bench.measure("round trip through fp8", 0, 4.0 * kHidden, [&] { round_to_fp8(x.data(), kHidden, rounded.data(), isa); });
  bench.measure("SwiGLU", 0, 8.0 * kHidden,
                [&] { v41_swiglu({.gate = x.data(), .up = x.data(), .weight = 1, .limit = 10, .n = kHidden, .out = rounded.data()}, isa); });
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  using namespace deepinfer;
  Isa isa = default_isa();
  if (argc > 1) {
    const std::string_view arg = argv[1];
    const auto isas = available_isas();
    const auto found = std::find_if(isas.begin(), isas.end(), [&](Isa i) { return arg == "--isa=" + std::string(isa_name(i)); });
    if (found == isas.end()) {
      fmt::print(stderr, "usage: v41_rows_bench [--isa=NAME]\n");
      return 2;
    }
    isa = *found;
  }
  Bench bench(isa);
  fmt::print("1 thread, {}\n", isa_name(isa));
  attention(bench, isa, KvRow::Kind::kBf16, "attention, window of this step");
  attention(bench, isa, KvRow::Kind::kFp8, "attention, window from the ring");
  index(bench, isa);
  rows(bench, isa);
  return 0;
}
