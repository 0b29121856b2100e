// LIBS: di_kv
// A value of the shared index from any bytes: what passes is written again as it was, and its names stay within their folder.
#include "base/check.h"
#include "kv/block_place.h"

using namespace deepinfer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view value(reinterpret_cast<const char*>(data), size);
  const Result<kv::BlockPlace> place = kv::decode_place(value);
  if (!place) return 0;
  const std::string names = place->tenant + place->name;
  CHECK(names.find('/') == std::string::npos && names.find("..") == std::string::npos);
  const Result<kv::BlockPlace> again = kv::decode_place(kv::encode_place(*place));
  CHECK(again.has_value() && *again == *place);
  return 0;
}
