#include "kernels/cpu/attention_impl.h"

namespace deepinfer::cpu {

void attend_partition_portable(const AttentionTile& tile) { attend_partition_float(tile); }

}  // namespace deepinfer::cpu
