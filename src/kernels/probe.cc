#include "kernels/probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/probe_kernels.h"
#include "kernels/linear.h"
#include "kernels/pages.h"

namespace deepinfer {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int64_t kReadBytes = int64_t{1} << 30;  // above the largest L3 caches in use; touched once, freed at the end
constexpr int kReadPasses = 5;
constexpr double kPeakSeconds = 0.03;

double seconds_since(SteadyClock::time_point begin) { return std::chrono::duration<double>(SteadyClock::now() - begin).count(); }

// Eight streams at once, as panels are read; bytes is a multiple of 8 * 64. The streams are an odd number of lines apart.
uint64_t read_streams(const std::byte* data, int64_t bytes) {
  typedef uint64_t Vector __attribute__((vector_size(16)));
  constexpr int kStreams = 8;
  const int64_t lines = (bytes / 64 / kStreams - 1) | 1;
  Vector sum[4] = {};
  for (int64_t line = 0; line < lines - 1; ++line) {
    for (int stream = 0; stream < kStreams; ++stream) {
      const auto* p = reinterpret_cast<const Vector*>(data + ((stream * lines) + line) * 64);
      for (int i = 0; i < 4; ++i) sum[i] ^= p[i];
    }
  }
  const Vector all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  return all[0] ^ all[1];
}

double peak_gop_s(const cpu::Peak& peak, Workers& workers) {
  if (peak.run == nullptr) return 0;
  const auto timed = [&](int64_t iterations) {
    const auto begin = SteadyClock::now();
    workers.run([&](Team&) { peak.run(iterations); });
    return seconds_since(begin);
  };
  int64_t iterations = 10000;
  timed(iterations);  // wakes the wide units
  const double trial = timed(iterations);
  iterations = std::max<int64_t>(iterations, static_cast<int64_t>(static_cast<double>(iterations) * kPeakSeconds / std::max(trial, 1e-6)));
  double best = timed(iterations);
  for (int repeat = 0; repeat < 2; ++repeat) best = std::min(best, timed(iterations));
  return peak.ops * static_cast<double>(iterations) * workers.size() / best * 1e-9;
}

}  // namespace

double probe_read_gb_s(Workers& workers) {
  const Pages pages(kReadBytes);
  const int64_t share = kReadBytes / workers.size() / 4096 * 4096;
  workers.run([&](Team& team) { std::memset(pages.data() + team.index() * share, 1, static_cast<size_t>(share)); });
  double passes[kReadPasses];
  uint64_t sink = 0;
  for (double& pass : passes) {
    const auto begin = SteadyClock::now();
    workers.run([&](Team& team) {
      const uint64_t sum = read_streams(pages.data() + team.index() * share, share);
      if (team.index() == 0) sink ^= sum;
    });
    pass = seconds_since(begin);
  }
  CHECK(sink == 0 || sink != 0x0123456789abcdef);  // keeps the reads
  std::sort(passes, passes + kReadPasses);
  return static_cast<double>(share) * workers.size() / passes[kReadPasses / 2] * 1e-9;
}

MachineRoof probe_roof(Workers& workers) {
  MachineRoof roof;
  roof.read_gb_s = probe_read_gb_s(workers);
  for (Isa isa : available_isas()) {
    cpu::Peaks peaks;
    switch (isa) {
      case Isa::kPortable: break;
      case Isa::kAvx2: peaks = cpu::avx2_peaks(); break;
      case Isa::kAvxVnni: peaks = cpu::avxvnni_peaks(); break;
      case Isa::kAvx512: peaks = cpu::avx512_peaks(); break;
      case Isa::kAmx: peaks = cpu::amx_peaks(); break;
    }
    double& int8 = isa == Isa::kAmx ? roof.amx_int8_gop_s : roof.vnni_gop_s;
    int8 = std::max(int8, peak_gop_s(peaks.int8, workers));
    roof.bf16_gop_s = std::max(roof.bf16_gop_s, peak_gop_s(peaks.bf16, workers));
    roof.f32_gop_s = std::max(roof.f32_gop_s, peak_gop_s(peaks.f32, workers));
  }
  return roof;
}

}  // namespace deepinfer
