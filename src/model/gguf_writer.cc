#include "model/gguf_writer.h"

#include "model/gguf_types.h"

namespace deepinfer::model {
namespace {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void put_text(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out.append(text);
}

}  // namespace

void GgufWriter::begin(std::string_view key, uint32_t type) {
  put_text(keys_, key);
  put(keys_, type);
  ++num_keys_;
}

void GgufWriter::add_text(std::string_view key, std::string_view value) {
  begin(key, static_cast<uint32_t>(GgufValueType::kString));
  put_text(keys_, value);
}
void GgufWriter::add_u32(std::string_view key, uint32_t value) {
  begin(key, static_cast<uint32_t>(GgufValueType::kU32));
  put(keys_, value);
}
void GgufWriter::add_f32(std::string_view key, float value) {
  begin(key, static_cast<uint32_t>(GgufValueType::kF32));
  put(keys_, value);
}
void GgufWriter::add_bool(std::string_view key, bool value) {
  begin(key, static_cast<uint32_t>(GgufValueType::kBool));
  put<uint8_t>(keys_, value ? 1 : 0);
}
void GgufWriter::add_texts(std::string_view key, std::span<const std::string> values) {
  begin(key, static_cast<uint32_t>(GgufValueType::kArray));
  put(keys_, static_cast<uint32_t>(GgufValueType::kString));
  put<uint64_t>(keys_, values.size());
  for (const std::string& value : values) put_text(keys_, value);
}
void GgufWriter::add_int32s(std::string_view key, std::span<const int32_t> values) {
  begin(key, static_cast<uint32_t>(GgufValueType::kArray));
  put(keys_, static_cast<uint32_t>(GgufValueType::kI32));
  put<uint64_t>(keys_, values.size());
  for (const int32_t value : values) put(keys_, value);
}

void GgufWriter::add_tensor(std::string_view name, DType dtype, std::span<const int64_t> shape) {
  put_text(table_, name);
  put(table_, static_cast<uint32_t>(shape.size()));
  uint64_t num_rows = 1;
  for (size_t d = shape.size(); d-- > 0;) put(table_, static_cast<uint64_t>(shape[d]));
  for (size_t d = 0; d + 1 < shape.size(); ++d) num_rows *= static_cast<uint64_t>(shape[d]);
  put(table_, gguf_tensor_type_id(dtype));
  put(table_, data_bytes_);
  const uint64_t num_bytes = num_rows * static_cast<uint64_t>(row_bytes(dtype, shape.back()));
  data_bytes_ += num_bytes + padding(num_bytes);
  ++num_tensors_;
}

std::string GgufWriter::header() const {
  std::string out;
  put(out, kGgufMagic);
  put<uint32_t>(out, 3);
  put(out, num_tensors_);
  put(out, num_keys_);
  out += keys_ + table_;
  out.append(padding(out.size()), '\0');
  return out;
}

uint64_t GgufWriter::padding(uint64_t num_bytes) {
  return (kGgufDefaultAlignment - num_bytes % kGgufDefaultAlignment) % kGgufDefaultAlignment;
}

}  // namespace deepinfer::model
