#include "kernels/cpu/attention_impl.h"

namespace deepinfer::cpu {

void attend_partition_avx2(const AttentionTile& tile) { attend_partition_float(tile); }

}  // namespace deepinfer::cpu
