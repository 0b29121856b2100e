#include "kernels/sink_attention.h"

#include "base/check.h"
#include "kernels/cpu/v41_kernels.h"

namespace deepinfer {

void sink_attention(const SinkAttentionParams& p, Isa isa) {
  DCHECK(p.head_dim % 32 == 0);
  DCHECK(p.num_heads <= kMaxSinkHeads);
  cpu::v41_kernels(isa).sink_attention(p);
}

}  // namespace deepinfer
