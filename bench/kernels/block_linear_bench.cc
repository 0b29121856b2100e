// Products over fp8, fp4 and bf16 weights as DeepSeek-V4.1's checkpoint stores them, by shape and number of rows, next to what the
// machine can do.
//
//   block_linear_bench [--threads=N] [--isa=NAME] [--formats=fp8,fp4,bf16] [--shape=NxK] [--rows=1,32,512] [--megabytes=512]
//
// Few rows: the weights rotate over --megabytes of copies, so that they come from memory as in decoding. The roof (a stream read, and
// bf16 products in registers) is measured again before every line, in turn with the product, since a shared machine changes by the
// second: the shares are medians over the turns.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "bench.h"
#include "kernels/block_linear.h"
#include "kernels/pages.h"
#include "kernels/roof.h"

namespace deepinfer {
namespace {

using bench::median, bench::seconds, bench::split;

struct Flags {
  int threads = 0;
  Isa isa = default_isa();
  std::vector<std::string> formats{"fp8", "fp4", "bf16"};
  int64_t outputs = 2304, cols = 5120, megabytes = 512;
  std::vector<int64_t> rows{1, 4, 32, 512};
};

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
    } else if (arg.starts_with("--formats=")) {
      flags.formats = split(value);
    } else if (arg.starts_with("--megabytes=")) {
      flags.megabytes = std::atoll(value.c_str());
    } else if (arg.starts_with("--shape=")) {
      if (std::sscanf(value.c_str(), "%ldx%ld", &flags.outputs, &flags.cols) != 2) return false;
    } else if (arg.starts_with("--rows=")) {
      flags.rows.clear();
      for (const std::string& item : split(value)) flags.rows.push_back(std::max(1, std::atoi(item.c_str())));
    } else {
      return false;
    }
  }
  return flags.cols % 32 == 0 && flags.cols <= kMaxProductCols;
}

// Copies of one matrix, `bytes` apart: codes, then scales.
class Copies {
 public:
  Copies(std::string_view format, const Flags& flags) : outputs_(flags.outputs), cols_(flags.cols) {
    code_bytes_ = outputs_ * cols_ * (format == "bf16" ? 4 : format == "fp8" ? 2 : 1) / 2;
    scale_bytes_ = format == "bf16" ? 0 : format == "fp8" ? (outputs_ + 31) / 32 * (cols_ / 32) : outputs_ * (cols_ / 32);
    count_ = std::max<int64_t>(1, (flags.megabytes << 20) / (code_bytes_ + scale_bytes_));
    pages_ = Pages(count_ * stride());
    Rng rng(1);
    auto* bytes = reinterpret_cast<uint8_t*>(pages_.data());
    for (int64_t i = 0; i < pages_.size() / 8; ++i) {
      const uint64_t bits = (rng.next_u64() & 0x3f3f3f3f3f3f3f3f) | 0x2020202020202020;  // finite and normal in every format
      std::memcpy(bytes + i * 8, &bits, 8);
    }
    for (int64_t i = 0; i < count_; ++i) std::memset(bytes + i * stride() + code_bytes_, 120, static_cast<size_t>(scale_bytes_));
  }
  int64_t count() const { return count_; }
  int64_t bytes() const { return code_bytes_ + scale_bytes_; }
  Fp8Matrix fp8(int64_t i) const { return {reinterpret_cast<const e4m3*>(at(i)), reinterpret_cast<const e8m0*>(at(i) + code_bytes_), outputs_, cols_}; }
  Fp4Matrix fp4(int64_t i) const { return {reinterpret_cast<const uint8_t*>(at(i)), reinterpret_cast<const e8m0*>(at(i) + code_bytes_), outputs_, cols_}; }
  Bf16Matrix bf16s(int64_t i) const { return {reinterpret_cast<const bf16*>(at(i)), outputs_, cols_}; }
  const std::byte* data() const { return pages_.data(); }
  int64_t size() const { return pages_.size(); }

 private:
  int64_t stride() const { return (code_bytes_ + scale_bytes_ + 63) / 64 * 64; }
  const std::byte* at(int64_t i) const { return pages_.data() + i * stride(); }
  int64_t outputs_, cols_, code_bytes_, scale_bytes_, count_;
  Pages pages_;
};

int run(const Flags& flags) {
  const auto workers = Workers::create(flags.threads);
  workers->pin_caller();
  fmt::print("{} threads, {}; [{}, {}]\n", workers->size(), isa_name(flags.isa), flags.outputs, flags.cols);
  const int64_t max_rows = *std::max_element(flags.rows.begin(), flags.rows.end());
  const Pages x_pages(max_rows * flags.cols * 2); const std::span<bf16> x(reinterpret_cast<bf16*>(x_pages.data()), static_cast<size_t>(max_rows * flags.cols));
  Rng rng(2);
  for (bf16& value : x) value = to_bf16(static_cast<float>(rng.uniform()) - 0.5f);
  std::vector<float> y(static_cast<size_t>(max_rows * flags.outputs));
  for (const std::string& format : flags.formats) {
    const Copies copies(format, flags);
    for (const int64_t rows : flags.rows) {
      int64_t next = 0;
      const auto product = [&](int64_t times) {
        const double begin = seconds();
        workers->run([&](Team& team) {
          for (int64_t i = 0; i < times; ++i) {
            const int64_t copy = (next + i) % copies.count();
            const Bf16Rows in{x.data(), flags.cols, rows};
            const ProductOut out{y.data(), flags.outputs, true};
            if (format == "fp8") linear(in, copies.fp8(copy), out, flags.isa, team);
            if (format == "fp4") linear(in, copies.fp4(copy), out, flags.isa, team);
            if (format == "bf16") linear(in, copies.bf16s(copy), out, flags.isa, team);
            team.barrier();
          }
        });
        next += times;
        return (seconds() - begin) / static_cast<double>(times);
      };
      const double ops = 2.0 * static_cast<double>(rows * flags.outputs * flags.cols), bytes = static_cast<double>(copies.bytes());
      const int64_t times = std::max<int64_t>(1, static_cast<int64_t>(0.02 / std::max(product(1), 1e-6)));
      std::vector<double> took, of_read, of_products;
      for (int turn = 0; turn < 15; ++turn) {
        const double read = read_bytes_per_s(flags.isa, copies.data(), copies.size(), *workers), peak = bf16_ops_per_s(flags.isa, *workers);
        took.push_back(product(times));
        of_read.push_back(bytes / took.back() / read);
        of_products.push_back(ops / took.back() / peak);
      }
      fmt::print("{:5} rows {:4}  {:9.1f} us  {:6.1f} GB/s ({:3.0f} % of reading)  {:7.0f} Gop/s ({:3.0f} % of bf16 products)\n", format, rows,
                 median(took) * 1e6, bytes / median(took) * 1e-9, 100 * median(of_read), ops / median(took) * 1e-9, 100 * median(of_products));
    }
  }
  return 0;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  deepinfer::Flags flags;
  if (!deepinfer::parse(argc, argv, flags)) {
    fmt::print(stderr, "usage: block_linear_bench [--threads=N] [--isa=NAME] [--formats=fp8,fp4,bf16] [--shape=NxK] [--rows=1,32] [--megabytes=N]\n");
    return 2;
  }
  return deepinfer::run(flags);
}
