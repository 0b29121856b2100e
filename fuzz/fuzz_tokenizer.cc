// LIBS: di_tokenizer
// tokenizer.json: loading from any bytes, then encoding and decoding the rest of the input with what was loaded.
//
// The input is a tokenizer.json, optionally a NUL byte and a tokenizer_config.json, optionally a NUL byte and a text. Without a text
// the file itself is encoded.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

using namespace deepinfer;
using namespace deepinfer::tokenizer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view json = input.substr(0, input.find('\0'));
  std::string_view rest = input.substr(json.size());
  if (!rest.empty()) rest.remove_prefix(1);
  const std::string_view config = rest.substr(0, rest.find('\0'));
  std::string_view text = rest.substr(config.size());
  if (!text.empty()) text.remove_prefix(1);
  if (text.empty()) text = input;

  const auto loaded = Tokenizer::from_json(json, config, "fuzz");
  if (!loaded) return 0;
  const Tokenizer& t = **loaded;
  for (const Recognize recognize : {Recognize::kNothing, Recognize::kUserDefined, Recognize::kAll}) {
    std::vector<TokenId> ids;
    t.encode(text, recognize, ids);
    std::string streamed;
    Detokenizer detokenizer(t, true);
    for (const TokenId id : ids) {
      if (id < 0 || id >= t.vocab_size()) std::abort();
      if (recognize == Recognize::kNothing && t.is_special(id)) std::abort();
      detokenizer.push(id, streamed);
    }
    detokenizer.finish(streamed);
    std::string whole = t.decode(ids, true);
    if (t.add_space_prefix() && !streamed.empty() && streamed[0] == ' ') streamed.erase(0, 1);
    if (streamed != whole) std::abort();
  }
  for (const TokenId id : t.stop_ids()) (void)t.token_bytes(id);
  for (const auto& added : t.added_tokens()) {
    if (t.special_id(added.spelling) != added.id) std::abort();
  }
  return 0;
}
