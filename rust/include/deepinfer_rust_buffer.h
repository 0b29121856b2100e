// Owns what the Rust library writes into a DiBuffer: for C++ callers of deepinfer_rust.h.
#pragma once

#include <deepinfer_rust.h>

#include <string_view>

namespace deepinfer {

struct RustBuffer {
  DiBuffer raw{nullptr, 0, 0};
  RustBuffer() = default;
  RustBuffer(const RustBuffer&) = delete;
  RustBuffer& operator=(const RustBuffer&) = delete;
  ~RustBuffer() { di_buffer_free(raw); }
  std::string_view text() const { return {reinterpret_cast<const char*>(raw.data), raw.size}; }
};

}  // namespace deepinfer
