// kv/block_place.h: where a stored block lies, as processes tell each other through a shared index. docs/formats/shared_index.md has the bytes.
// A place is a hint: what lies there is compared with the key before anybody sees it, as always.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kv/block_key.h"

namespace deepinfer::kv {

struct BlockPlace {
  std::string tenant;  // name of the folder
  std::string name;    // of the segment file in it
  uint32_t page = 0;   // where the record begins; at least 1
  uint32_t length = 0; // of its rows
  uint32_t written_after_s = 0;  // FooterEntry's
  bool operator==(const BlockPlace&) const = default;
};

// Under which key of the index a block stands: its whole key, so that nothing shorter decides.
std::string index_key(const BlockKey& key);
std::string encode_place(const BlockPlace& place);
// From bytes that anybody may have written: names that could lead out of a model's folder do not pass. Errors: kCorruption.
Result<BlockPlace> decode_place(std::string_view value);

}  // namespace deepinfer::kv
