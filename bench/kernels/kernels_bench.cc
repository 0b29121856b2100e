// Products of packed weights by format, shape and number of rows, next to what the machine can do.
//
//   kernels_bench [--threads=N] [--isa=NAME] [--dtypes=Q4_K,Q8_0] [--shape=NxK] [--rows=1,8,512] [--megabytes=512] [--activations=f32]
//
// For few rows the weights rotate over --megabytes of copies, so that they come from memory as in decoding (0: one copy, from the
// caches). Gop/s counts a multiply-add as two; GB/s counts packed weight bytes. Best of 15 repetitions of about 10 ms: on a shared
// machine the best is what the kernel does, and the rest what the neighbours do.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "bench.h"
#include "kernels/linear.h"
#include "kernels/panels.h"
#include "kernels/roof.h"

namespace deepinfer {
namespace {

using bench::seconds, bench::split;

struct Flags {
  int threads = 0;
  Isa isa = default_isa();
  Activations activations = Activations::kFast;
  std::vector<DType> dtypes{DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ4_K, DType::kQ6_K, DType::kBF16, DType::kF16};
  int64_t outputs = 3072, cols = 1024, megabytes = 512;
  std::vector<int64_t> rows{1, 4, 8, 16, 64, 512};
};

constexpr DType kDTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0, DType::kQ4_1,  DType::kQ5_0,   DType::kQ5_1, DType::kQ8_0,
                             DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS};

bool parse(int argc, char** argv, Flags& flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const std::string value(arg.substr(std::min(arg.find('=') + 1, arg.size())));
    if (arg.starts_with("--threads=")) {
      flags.threads = std::atoi(value.c_str());
    } else if (arg.starts_with("--isa=")) {
      const auto isas = available_isas();
      const auto found = std::find_if(isas.begin(), isas.end(), [&](Isa isa) { return isa_name(isa) == value; });
      if (found == isas.end()) return false;
      flags.isa = *found;
    } else if (arg == "--activations=f32") {
      flags.activations = Activations::kF32;
    } else if (arg.starts_with("--megabytes=")) {
      flags.megabytes = std::atoll(value.c_str());
    } else if (arg.starts_with("--rows=")) {
      flags.rows.clear();
      for (const std::string& item : split(value)) flags.rows.push_back(std::max(1, std::atoi(item.c_str())));
    } else if (arg.starts_with("--shape=")) {
      if (std::sscanf(value.c_str(), "%ldx%ld", &flags.outputs, &flags.cols) != 2) return false;
    } else if (arg.starts_with("--dtypes=")) {
      flags.dtypes.clear();
      for (const std::string& item : split(value)) {
        for (DType dtype : kDTypes)
          if (dtype_info(dtype).name == item) flags.dtypes.push_back(dtype);
      }
    } else {
      return false;
    }
  }
  return !flags.dtypes.empty();
}

// Bytes that are finite numbers in every format: small f16 and bf16 alike, codes of all kinds.
std::vector<std::byte> weights_of(DType dtype, int64_t outputs, int64_t cols) {
  std::vector<std::byte> out(outputs * row_bytes(dtype, cols));
  Rng rng(1);
  for (size_t i = 0; i < out.size(); i += 8) {
    const uint64_t bits = rng.next_u64() & 0x2f2f2f2f2f2f2f2f;
    std::memcpy(&out[i], &bits, std::min<size_t>(8, out.size() - i));
  }
  return out;
}

// Seconds of one product, activations included.
double seconds_of(const std::vector<std::unique_ptr<Linear>>& copies, int64_t rows, const std::vector<float>& x, std::vector<float>& y,
                  ActivationBuffer& act, Workers& workers) {
  const int64_t cols = copies[0]->cols(), outputs = copies[0]->rows();
  size_t next = 0;
  const auto run = [&](int64_t times) {
    const double begin = seconds();
    workers.run([&](Team& team) {
      for (int64_t i = 0; i < times; ++i) {
        const Linear& linear = *copies[(next + static_cast<size_t>(i)) % copies.size()];
        linear.prepare(x.data(), cols, rows, act, team);
        if (rows > 1) team.barrier();
        linear.apply(act, rows, nullptr, y.data(), outputs, team);
        team.barrier();
      }
    });
    next += static_cast<size_t>(times);
    return seconds() - begin;
  };
  const double once = run(1);
  const auto times = std::max<int64_t>(1, static_cast<int64_t>(0.01 / std::max(once, 1e-6)));
  double best = once;
  for (int repeat = 0; repeat < 15; ++repeat) best = std::min(best, run(times) / static_cast<double>(times));
  return best;
}

int run(const Flags& flags) {
  const auto workers = Workers::create(flags.threads);
  workers->pin_caller();
  const Roof roof = measure_roof(flags.isa, std::max<int64_t>(flags.megabytes, 1) << 20, *workers);
  fmt::print("{} threads, {}; roof: memory {:.1f} GB/s, the same bytes again {:.1f} GB/s, int8 {:.0f} Gop/s, bf16 {:.0f} Gop/s; [{}, {}]\n",
             workers->size(), isa_name(flags.isa), roof.read_bytes_per_s * 1e-9, roof.read_model_bytes_per_s * 1e-9,
             roof.int8_ops_per_s * 1e-9, roof.bf16_ops_per_s * 1e-9, flags.outputs, flags.cols);
  for (DType dtype : flags.dtypes) {
    const auto weights = weights_of(dtype, flags.outputs, flags.cols);
    const LinearSource source{dtype, weights.data(), flags.outputs};
    std::vector<std::unique_ptr<Linear>> copies;
    do {
      copies.push_back(Linear::pack({&source, 1}, flags.cols, {flags.activations, flags.isa}, *workers));
    } while (static_cast<int64_t>(copies.size()) * copies[0]->packed_bytes() < flags.megabytes << 20);
    const int64_t max_rows = *std::max_element(flags.rows.begin(), flags.rows.end());
    std::vector<float> x(max_rows * flags.cols), y(max_rows * flags.outputs);
    Rng rng(2);
    for (float& value : x) value = static_cast<float>(rng.uniform()) - 0.5f;
    ActivationBuffer act;
    act.reserve(max_rows, flags.cols);
    for (int64_t rows : flags.rows) {
      const double seconds = seconds_of(copies, rows, x, y, act, *workers);
      const double ops = 2.0 * static_cast<double>(rows * flags.outputs * flags.cols), bytes = static_cast<double>(copies[0]->packed_bytes());
      fmt::print("{:7} rows {:4}  {:9.1f} us  {:7.0f} Gop/s  {:6.1f} GB/s ({:3.0f} % of the roof)\n", dtype_info(dtype).name, rows, seconds * 1e6,
                 ops / seconds * 1e-9, bytes / seconds * 1e-9, 100 * bytes / seconds / roof.read_model_bytes_per_s);
    }
  }
  return 0;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  deepinfer::Flags flags;
  if (!deepinfer::parse(argc, argv, flags)) {
    fmt::print(stderr, "usage: kernels_bench [--threads=N] [--isa=NAME] [--dtypes=A,B] [--shape=NxK] [--rows=1,8] [--megabytes=N] [--activations=f32]\n");
    return 2;
  }
  return deepinfer::run(flags);
}
