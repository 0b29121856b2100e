// Golden arrays for tests: a whole .safetensors file in memory, tensors by name as floats or whole numbers. Aborts the test on what
// is not there: golden files are ours.
#pragma once

#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <simdjson.h>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/half.h"

namespace deepinfer {

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    CHECK(in.good());
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    uint64_t header = 0;
    std::memcpy(&header, bytes_.data(), 8);
    data_ = bytes_.data() + 8 + header;
    CHECK(parser_.parse(bytes_.data() + 8, header).get(root_) == simdjson::SUCCESS);
  }

  bool has(std::string_view name) const { return !root_.at_key(name).error(); }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto field : root_)
      if (field.key != "__metadata__") out.emplace_back(field.key);
    return out;
  }

  std::string dtype(std::string_view name) const { return std::string(find(name).dtype); }

  std::vector<int64_t> shape(std::string_view name) const {
    std::vector<int64_t> out;
    const simdjson::dom::array dims = root_.at_key(name)["shape"].get_array().value();
    for (const auto d : dims) out.push_back(d.get_int64().value());
    return out;
  }

  std::vector<float> floats(std::string_view name) const {
    const auto [dtype, begin, size] = find(name);
    std::vector<float> out;
    if (dtype == "F32") {
      out.resize(size / 4);
      std::memcpy(out.data(), begin, size);
    } else {
      CHECK(dtype == "BF16");
      out.resize(size / 2);
      for (size_t i = 0; i < out.size(); ++i) {
        bf16 x;
        std::memcpy(&x, begin + 2 * i, 2);
        out[i] = to_f32(x);
      }
    }
    return out;
  }

  std::vector<int64_t> integers(std::string_view name) const {
    const auto [dtype, begin, size] = find(name);
    std::vector<int64_t> out;
    if (dtype == "I32") out = widen<int32_t>(begin, size);
    else if (dtype == "I64") out = widen<int64_t>(begin, size);
    else if (dtype == "U8") out = widen<uint8_t>(begin, size);
    else CHECK(false);
    return out;
  }

  std::vector<uint8_t> bytes(std::string_view name) const {
    const auto [dtype, begin, size] = find(name);
    return {reinterpret_cast<const uint8_t*>(begin), reinterpret_cast<const uint8_t*>(begin) + size};
  }

 private:
  struct Found {
    std::string_view dtype;
    const char* begin;
    size_t size;
  };

  Found find(std::string_view name) const {
    simdjson::dom::element entry;
    if (root_.at_key(name).get(entry) != simdjson::SUCCESS) {
      ADD_FAILURE() << "golden tensor " << name << " is not there";
      CHECK(false);
    }
    const auto offsets = entry["data_offsets"].get_array().value();
    const uint64_t begin = offsets.at(0).get_uint64().value(), end = offsets.at(1).get_uint64().value();
    return {entry["dtype"].get_string().value(), data_ + begin, end - begin};
  }

  template <class T>
  static std::vector<int64_t> widen(const char* begin, size_t size) {
    std::vector<T> narrow(size / sizeof(T));
    std::memcpy(narrow.data(), begin, size);
    return {narrow.begin(), narrow.end()};
  }

  std::string bytes_;
  const char* data_ = nullptr;
  simdjson::dom::parser parser_;
  simdjson::dom::object root_;
};

}  // namespace deepinfer
