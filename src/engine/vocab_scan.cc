#include "engine/vocab_scan.h"

#include <algorithm>

#include "base/check.h"
#include "engine/vocab_scan_impl.h"  // for the baseline
#include "engine/vocab_scan_tables.h"

namespace deepinfer::engine {

const ScanKernels& scan_kernels(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kAmx:
    case Isa::kAvx512: return scan_kernels_avx512();
    case Isa::kAvxVnni:
    case Isa::kAvx512f:
    case Isa::kAvx2: return scan_kernels_avx2();
    case Isa::kPortable: break;
  }
#endif
  static constexpr ScanKernels kTable = kKernels;
  return kTable;
}

double exp_of(double t) { return t < kLeastExponent ? 0 : exp_core<double, int64_t>(t); }

Candidate find_best(const ScannedRow& row) {
  const float* block = std::max_element(row.block_max, row.block_max + num_scan_blocks(row.n));  // the first of equals
  auto id = static_cast<int32_t>(block - row.block_max) * kScanBlock;
  while (row.x[id] != *block) ++id;
  return {*block, id};
}

int32_t gather_above(const ScannedRow& row, float threshold, Candidate* out) {
  int32_t count = 0;
  for (int32_t begin = 0, block = 0; begin < row.n; begin += kScanBlock, ++block) {
    if (row.block_max[block] < threshold) continue;
    const int32_t end = std::min(row.n, begin + kScanBlock);
    for (int32_t id = begin; id < end; ++id) {
      out[count] = {row.x[id], id};  // count <= id: inside out
      count += row.x[id] >= threshold;
    }
  }
  return count;
}

int32_t find_top(const ScannedRow& row, std::span<Candidate> out) {
  size_t found = 0;
  for (int32_t begin = 0, block = 0; begin < row.n; begin += kScanBlock, ++block) {
    // Once full, a later equal is never better: strictly greater is enough to look closer.
    if (found == out.size() && (found == 0 || row.block_max[block] <= out[found - 1].logit)) continue;
    const int32_t end = std::min(row.n, begin + kScanBlock);
    for (int32_t id = begin; id < end; ++id) {
      const Candidate candidate{row.x[id], id};
      if (found == out.size() && !better(candidate, out[found - 1])) continue;
      size_t place = found < out.size() ? found++ : found - 1;
      for (; place > 0 && better(candidate, out[place - 1]); --place) out[place] = out[place - 1];
      out[place] = candidate;
    }
  }
  return static_cast<int32_t>(found);
}

}  // namespace deepinfer::engine
