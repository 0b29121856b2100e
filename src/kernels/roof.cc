#include "kernels/roof.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "kernels/pages.h"

namespace deepinfer {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kMemoryBytes = int64_t{1} << 30;
constexpr int kRepeats = 5;

cpu::RoofLoops loops_of(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2: return cpu::roof_loops_avx2();
    case Isa::kAvx512f: return cpu::roof_loops_avx512f();
    case Isa::kAvxVnni: return cpu::roof_loops_avxvnni();
    case Isa::kAvx512: return cpu::roof_loops_avx512();
    case Isa::kAmx: return cpu::roof_loops_amx();
#endif
    default: return cpu::roof_loops_portable();
  }
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Bytes a second over the first num_bytes of `data`, read `passes` times by all threads; the best of `repeats`.
double read_rate(const cpu::RoofLoops& loops, const std::byte* data, int64_t num_bytes, int passes, int repeats, Workers& workers) {
  const int64_t whole_bytes = num_bytes / kPage * kPage;
  double best = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const double begin = seconds();
    workers.run([&](Team& team) {
      const auto [from, to] = team.range(num_bytes / kPage);
      for (int pass = 0; pass < passes; ++pass) loops.read(data + from * kPage, (to - from) * kPage);
    });
    best = std::max(best, static_cast<double>(whole_bytes) * passes / (seconds() - begin));
  }
  return best;
}

double arithmetic_rate(double (*loop)(int64_t), int64_t iterations, int repeats, Workers& workers) {
  std::vector<double> ops(static_cast<size_t>(workers.size()));
  double best = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const double begin = seconds();
    workers.run([&](Team& team) { ops[static_cast<size_t>(team.index())] = loop(iterations); });
    const double took = seconds() - begin;
    double sum = 0;
    for (const double n : ops) sum += n;
    best = std::max(best, sum / took);
    if (took < 0.03) iterations *= 4;  // long enough that starting and ending do not count
  }
  return best;
}

// Memory that is there and whose pages differ.
Pages filled_pages() {
  Pages pages(kMemoryBytes);
  for (int64_t at = 0; at < kMemoryBytes; at += kPage) std::memset(pages.data() + at, static_cast<int>(at >> 12), kPage);
  return pages;
}

}  // namespace

double measure_read_rate(Isa isa, Workers& workers) {
  const Pages pages = filled_pages();
  return read_rate(loops_of(isa), pages.data(), kMemoryBytes, 1, kRepeats, workers);
}

Roof measure_roof(Isa isa, int64_t model_bytes, Workers& workers) {
  const cpu::RoofLoops loops = loops_of(isa);
  const Pages pages = filled_pages();
  Roof roof;
  roof.read_bytes_per_s = read_rate(loops, pages.data(), kMemoryBytes, 1, kRepeats, workers);
  const int64_t bytes = std::clamp<int64_t>(model_bytes, kPage * workers.size(), kMemoryBytes);
  roof.read_model_bytes_per_s = read_rate(loops, pages.data(), bytes, static_cast<int>(std::max<int64_t>(1, kMemoryBytes / bytes)), kRepeats, workers);
  roof.int8_ops_per_s = arithmetic_rate(loops.int8, 10000, 8, workers);
  roof.bf16_ops_per_s = arithmetic_rate(loops.bf16, 10000, 8, workers);
  return roof;
}

double read_bytes_per_s(Isa isa, const std::byte* data, int64_t num_bytes, Workers& workers) {
  return read_rate(loops_of(isa), data, num_bytes, 1, 1, workers);
}
double bf16_ops_per_s(Isa isa, Workers& workers) { return arithmetic_rate(loops_of(isa).bf16, 1000000, 1, workers); }

namespace cpu {
namespace {

// Eight streams a page apart in turn would be a prefetcher's puzzle; one stream is what kernels read.
void read_portable(const std::byte* data, int64_t num_bytes) {
  uint64_t sum[8] = {};
  for (int64_t at = 0; at < num_bytes; at += 64) {
    uint64_t words[8];
    std::memcpy(words, data + at, 64);
    for (int i = 0; i < 8; ++i) sum[i] ^= words[i];
  }
  asm volatile("" : : "r"(sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7]));
}

// 64 bytes of int8 products by plain code, vectorised as the compiler can.
double int8_portable(int64_t iterations) {
  int8_t a[64], b[64];
  for (int i = 0; i < 64; ++i) a[i] = static_cast<int8_t>(i), b[i] = static_cast<int8_t>(3 * i);
  uint32_t sums[16] = {};  // they wrap round
  for (int64_t n = 0; n < iterations; ++n) {
    asm volatile("" : : "r"(a), "r"(b) : "memory");
    for (int i = 0; i < 64; ++i) sums[i & 15] += static_cast<uint32_t>(int32_t{a[i]} * b[i]);
  }
  asm volatile("" : : "r"(sums) : "memory");
  return 128.0 * static_cast<double>(iterations);
}

double bf16_portable(int64_t iterations) {
  float a[16], b[16], sums[16] = {};
  for (int i = 0; i < 16; ++i) a[i] = 0.5f, b[i] = 0.25f;
  for (int64_t n = 0; n < iterations; ++n) {
    asm volatile("" : : "r"(a), "r"(b) : "memory");
    for (int i = 0; i < 16; ++i) sums[i] += a[i] * b[i];
  }
  asm volatile("" : : "r"(sums) : "memory");
  return 32.0 * static_cast<double>(iterations);
}

}  // namespace

RoofLoops roof_loops_portable() { return {read_portable, int8_portable, bf16_portable}; }

}  // namespace cpu
}  // namespace deepinfer
