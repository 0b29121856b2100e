// The machine's roof, measured: what `deepinfer bench` and the kernels' benchmark print their figures next to. Uses the caller's
// workers, so it is the roof for that many threads; about a second in all.
#pragma once

#include "kernels/team.h"

namespace deepinfer {

struct MachineRoof {
  double read_gb_s = 0;       // memory read by all threads, from a buffer larger than the caches if memory allows
  double vnni_gop_s = 0;      // int8 dot products with 32-bit sums, best vector instruction; a multiply-add counts 2
  double amx_int8_gop_s = 0;  // matrix tiles; 0 without them
  double bf16_gop_s = 0;      // best of vector instruction and tiles; 0 without either
  double f32_gop_s = 0;       // fused multiply-adds
};

MachineRoof probe_roof(Workers& workers);
// The first figure alone: on shared machines it moves from minute to minute.
double probe_read_gb_s(Workers& workers);

}  // namespace deepinfer
