// Loops of nothing but one kind of arithmetic, for measuring a machine's peak.
#pragma once

#include <cstdint>

namespace deepinfer::cpu {

struct Peak {
  void (*run)(int64_t iterations) = nullptr;  // null: the instruction set has no such operation
  double ops = 0;                             // of one iteration; a multiply-add counts 2
};
struct Peaks {
  Peak int8, bf16, f32;
};

Peaks avx2_peaks();
Peaks avxvnni_peaks();
Peaks avx512_peaks();
Peaks amx_peaks();

}  // namespace deepinfer::cpu
