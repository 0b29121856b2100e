#include "kernels/roof.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

// Not how fast: that every loop of this machine runs and gives a rate that no machine falls short of or passes.
TEST(Roof, EveryInstructionSetOfThisMachine) {
  const std::unique_ptr<Workers> workers = Workers::create(1);
  for (const Isa isa : available_isas()) {
    const Roof roof = measure_roof(isa, 1 << 20, *workers);
    for (const double rate : {roof.read_bytes_per_s, roof.read_model_bytes_per_s, roof.int8_ops_per_s, roof.bf16_ops_per_s}) {
      EXPECT_GT(rate, 1e6) << isa_name(isa);
      EXPECT_LT(rate, 1e16) << isa_name(isa);
    }
  }
}

}  // namespace
}  // namespace deepinfer
