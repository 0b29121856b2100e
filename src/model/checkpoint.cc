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

}  // namespace deepinfer::model
