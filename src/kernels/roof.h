// The machine's own roof: how fast all threads together can read memory, and multiply when nothing but registers is touched. What
// a benchmark divides by; never used to choose a kernel. Each figure is measured for some 0.1 s and reported as the best of its
// repeats, since a roof is what is possible.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/linear.h"
#include "kernels/team.h"

namespace deepinfer {

struct Roof {
  double read_bytes_per_s = 0;        // a stream over 1 GiB: main memory
  double read_model_bytes_per_s = 0;  // a stream over `model_bytes`, again and again: what a cache that holds the model allows
  double int8_ops_per_s = 0;          // 8-bit products with 32-bit sums; a multiply-add counts two
  double bf16_ops_per_s = 0;          // products of bf16 numbers with f32 sums; without such instructions, those of f32 numbers
};

// Takes about two seconds. The arithmetic is that of `isa`.
Roof measure_roof(Isa isa, int64_t model_bytes, Workers& workers);

// One quick look each, for comparisons in turn with what is measured: a stream over num_bytes at data, once; products for some 10 ms.
double read_bytes_per_s(Isa isa, const std::byte* data, int64_t num_bytes, Workers& workers);
double bf16_ops_per_s(Isa isa, Workers& workers);
// Roof::read_bytes_per_s alone, in half a second.
double measure_read_rate(Isa isa, Workers& workers);

namespace cpu {
// One set of loops an instruction set. The arithmetic loops return the operations they made.
struct RoofLoops {
  void (*read)(const std::byte* data, int64_t num_bytes);  // whole 4 KiB pages
  double (*int8)(int64_t iterations);
  double (*bf16)(int64_t iterations);
};
RoofLoops roof_loops_portable();
RoofLoops roof_loops_avx2();
RoofLoops roof_loops_avxvnni();
RoofLoops roof_loops_avx512f();
RoofLoops roof_loops_avx512();
RoofLoops roof_loops_amx();
}  // namespace cpu

}  // namespace deepinfer
