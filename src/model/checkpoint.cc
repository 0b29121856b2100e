#include "model/checkpoint.h"

#include <algorithm>

namespace deepinfer::model {

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto all = tensors();
  const auto it =
      std::lower_bound(all.begin(), all.end(), name, [](const TensorView& t, std::string_view n) { return t.name < n; });
  return it != all.end() && it->name == name ? &*it : nullptr;
}

void Checkpoint::release(const TensorView& tensor) const {
  if (const io::MappedFile* mapping = mapping_of(tensor)) mapping->release(tensor.data);
}

std::vector<std::span<const std::byte>> joined(std::vector<std::span<const std::byte>> ranges) {
  using Bytes = std::span<const std::byte>;
  std::sort(ranges.begin(), ranges.end(), [](Bytes a, Bytes b) { return a.data() < b.data(); });
  std::vector<Bytes> out;
  for (const Bytes range : ranges) {
    if (!out.empty() && out.back().data() + out.back().size() == range.data()) {
      out.back() = Bytes(out.back().data(), out.back().size() + range.size());
    } else {
      out.push_back(range);
    }
  }
  return out;
}

}  // namespace deepinfer::model
