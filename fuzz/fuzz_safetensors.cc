// LIBS: di_model
// safetensors files and config.json, from any bytes: the input is tried as both.
#include "model/dense_config.h"
#include "model/safetensors.h"

using namespace deepinfer::model;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)dense_config_from_json(text, text, "fuzz/config.json").has_value();
  const auto file = Safetensors::parse(std::as_bytes(std::span(data, size)), "fuzz.safetensors");
  if (!file) return 0;
  volatile uint64_t sink = 0;
  for (const TensorView& tensor : (*file)->tensors()) {
    sink = sink + static_cast<uint64_t>(tensor.data.front()) + static_cast<uint64_t>(tensor.data.back());
  }
  return 0;
}
