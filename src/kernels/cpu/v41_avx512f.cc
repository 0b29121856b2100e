#if defined(__x86_64__)
#include "kernels/cpu/full_attention_impl.h"
#include "kernels/cpu/index_scores_impl.h"
#include "kernels/cpu/sink_attention_impl.h"
#include "kernels/cpu/v41_kernels.h"
#include "kernels/cpu/v41_rows_impl.h"

namespace deepinfer::cpu {

const V41Kernels& v41_kernels_avx512f() {
  static constexpr V41Kernels kTable = DI_V41_KERNELS;
  return kTable;
}

}  // namespace deepinfer::cpu
#endif
