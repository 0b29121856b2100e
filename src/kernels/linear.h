// Matrix products with packed weights: y[t, n] = sum_k x[t, k] * w[n, k] (+ bias[n]).
//
// Weights are packed once, at load, from the rows of the model file into panels that a kernel reads as one linear stream
// (docs/formats/panels.md). Which kernel runs is fixed when the matrix is packed: by dtype, by Isa, and by Activations.
// Determinism: every output is summed in one fixed order that depends on (dtype, K, isa, activations) only: not on the number of
// rows, nor on which rows share a tile, nor on the thread count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/dtype.h"
#include "kernels/pages.h"
#include "kernels/team.h"

namespace deepinfer {

// kFast: activations rounded to 8 bits in groups of 32 for integer weight formats, to bf16 for BF16 weights; float for F16 and F32.
// kF32: weights dequantised exactly, float32 activations and sums: the reference mode of the product.
enum class Activations : uint8_t { kFast, kF32 };

// kAvx512f: AVX-512 without VNNI and BF16, which only the float kernels of DeepSeek-V4.1 use; the others take AVX2. kAvx512 has both.
enum class Isa : uint8_t { kPortable, kAvx2, kAvxVnni, kAvx512f, kAvx512, kAmx };
std::string_view isa_name(Isa isa);
// The instruction sets of this machine, best last; kPortable always.
std::span<const Isa> available_isas();
// DEEPINFER_ISA (portable, avx2, avxvnni, avx512f, avx512, amx) if set and available (abort with a sentence if not), else the best.
Isa default_isa();
// Whether a dot product of bf16 pairs, one operation on AMD's processors, is several here, so that two multiply-adds of f32 are faster.
bool has_slow_bf16_pairs();

// Weights of one matrix as they lie in the file: [rows, cols] row-major in dtype's blocks.
struct LinearSource {
  DType dtype;
  const std::byte* data;
  int64_t rows;
};

class Linear;

// Scratch for one activation matrix in the form that a Linear wants: filled by prepare(), read by apply(). Owned by the model's
// workspace and sized for the largest step, so that a step allocates nothing; memory that no step touches stays unmapped.
class ActivationBuffer {
 public:
  // For up to max_rows rows (and always one a thread) of up to max_cols numbers.
  void reserve(int64_t max_rows, int64_t max_cols);
  int64_t max_rows() const { return max_rows_; }
  int64_t max_cols() const { return max_cols_; }
  std::byte* data() const { return pages_.data(); }  // layout private to linear.cc
  int64_t bytes() const { return pages_.size(); }

 private:
  Pages pages_;
  int64_t max_rows_ = 0, max_cols_ = 0;
};

class Linear {
 public:
  struct Options {
    Activations activations = Activations::kFast;
    Isa isa = Isa::kPortable;
  };
  // Packs the concatenation of `sources` along the rows (fused q,k,v and gate,up), each with its own dtype, cols columns. Uses all
  // threads. cols is a multiple of 32 for block formats, of 256 for K formats; any number otherwise.
  static std::unique_ptr<Linear> pack(std::span<const LinearSource> sources, int64_t cols, const Options& options, Workers& workers);
  virtual ~Linear() = default;
  int64_t rows() const { return rows_; }  // outputs
  int64_t cols() const { return cols_; }  // inputs
  virtual int64_t packed_bytes() const = 0;

  // All threads together. x: [num_rows, cols] floats, row stride ldx (floats). Fills `act` with x in the form apply() wants;
  // ends WITHOUT a barrier. Rows are split over the team, or, for num_rows == 1, quantised by every thread into its own copy.
  virtual void prepare(const float* x, int64_t ldx, int64_t num_rows, ActivationBuffer& act, Team& team) const = 0;
  // All threads together, after a barrier (num_rows > 1). y: [num_rows, rows] floats with row stride ldy; overwritten.
  // bias: [rows] or null.
  virtual void apply(const ActivationBuffer& act, int64_t num_rows, const float* bias, float* y, int64_t ldy, Team& team) const = 0;

 protected:
  int64_t rows_ = 0, cols_ = 0;
};

}  // namespace deepinfer
