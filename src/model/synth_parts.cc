#include "model/synth_parts.h"

#include <cmath>

#include "base/rng.h"

namespace deepinfer::model {

// The sum of a word's four bytes, centred and scaled. A byte has variance (256^2 - 1) / 12, four of them 21845: near enough to a bell for
// this purpose, and a tenth of the cost of a true one.
void random_row(uint64_t seed, uint64_t tensor, uint64_t row, float deviation, std::span<float> out) {
  const float scale = deviation / std::sqrt(21845.0f);
  const uint64_t per_row = (out.size() + 3) / 4;
  for (size_t i = 0; i < out.size(); i += 4) {
    const auto words = philox(seed, row * per_row + i / 4, tensor);
    for (size_t j = 0; j < 4 && i + j < out.size(); ++j) {
      const uint32_t pairs = (words[j] & 0x00ff00ff) + (words[j] >> 8 & 0x00ff00ff);
      out[i + j] = static_cast<float>(static_cast<int>((pairs & 0xffff) + (pairs >> 16)) - 510) * scale;
    }
  }
}

// A byte stands for itself if it is printable Latin-1, else for the next free character from U+0100 on.
std::vector<std::string> byte_spellings() {
  std::vector<std::string> out;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = printable ? byte : next++;
    if (code < 128) {
      out.emplace_back(1, static_cast<char>(code));
    } else {
      out.push_back({static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))});
    }
  }
  return out;
}

}  // namespace deepinfer::model
