// LIBS: di_model
// GGUF files: parsing, every typed getter, the configuration, binding and the vocabulary, from any bytes at all.
#include "model/dense_weights.h"
#include "model/gguf.h"
#include "model/gguf_vocabulary.h"

using namespace deepinfer::model;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz.gguf", GgufFile::UnsupportedTypes::kList);
  if (!file) return 0;
  volatile uint64_t sink = 0;  // reads the first and last byte of every view: asan sees whether they are inside the input
  for (const TensorView& tensor : (*file)->tensors()) {
    sink = sink + static_cast<uint64_t>(tensor.data.front()) + static_cast<uint64_t>(tensor.data.back());
  }
  for (const std::string_view key : (*file)->keys()) {
    (void)(*file)->find_integer(key).has_value();
    (void)(*file)->find_number(key).has_value();
    (void)(*file)->find_bool(key).has_value();
    (void)(*file)->floats(key).has_value();
    (void)(*file)->int32s(key).has_value();
    if (const auto text = (*file)->find_text(key); text && *text && !(*text)->empty())
      sink = sink + static_cast<uint64_t>((*text)->back());
    if (const auto texts = (*file)->texts(key)) {
      for (const std::string_view text : *texts) {
        if (!text.empty()) sink = sink + static_cast<uint64_t>(text.back());
      }
    }
  }
  (void)gguf_vocabulary(**file).has_value();
  if (const auto config = dense_config_from_gguf(**file)) (void)bind_dense(**file, *config).has_value();
  return 0;
}
