#include "kernels/engram_gate.h"

#include "kernels/cpu/v41_kernels.h"

namespace deepinfer {

void engram_gate(const EngramGateParams& p, Isa isa) { cpu::v41_kernels(isa).engram_gate(p); }

}  // namespace deepinfer
