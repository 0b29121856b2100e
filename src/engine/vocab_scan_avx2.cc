#include "engine/vocab_scan_impl.h"
#include "engine/vocab_scan_tables.h"

namespace deepinfer::engine {

const ScanKernels& scan_kernels_avx2() {
  static constexpr ScanKernels kTable = kKernels;
  return kTable;
}

}  // namespace deepinfer::engine
