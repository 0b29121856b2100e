#include "model/safetensors_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace deepinfer::model {

std::string safetensors_header(std::span<const SafetensorsEntry> entries) {
  std::string json = "{";
  int64_t at = 0;
  for (const SafetensorsEntry& e : entries) {
    json += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", at == 0 ? "" : ",", e.name, e.dtype, fmt::join(e.shape, ","), at,
                        at + e.num_bytes);
    at += e.num_bytes;
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string header(8, '\0');
  for (size_t i = 0; i < 8; ++i) header[i] = static_cast<char>(uint64_t{json.size()} >> 8 * i);
  return header + json;
}

}  // namespace deepinfer::model
