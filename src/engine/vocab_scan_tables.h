// engine/vocab_scan_tables.h: where scan_kernels() finds the versions.
#pragma once

#include "engine/vocab_scan.h"

namespace deepinfer::engine {

#if defined(__x86_64__)
const ScanKernels& scan_kernels_avx2();
const ScanKernels& scan_kernels_avx512();
#endif

}  // namespace deepinfer::engine
