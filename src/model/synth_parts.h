// What random models of every architecture share: weights with a bell-shaped spread, and a byte-level vocabulary. Pure functions of their
// arguments, the same on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace deepinfer::model {

// Numbers of mean 0 and the given standard deviation: element i of row `row` of tensor `tensor`.
void random_row(uint64_t seed, uint64_t tensor, uint64_t row, float deviation, std::span<float> out);

// The character that byte-level BPE spells each of the 256 bytes with (GPT-2's table), as UTF-8.
std::vector<std::string> byte_spellings();

}  // namespace deepinfer::model
