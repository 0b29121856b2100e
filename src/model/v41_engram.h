// The addresses of Engram, V4.1's n-gram memory: which table rows a position reads, as a pure function of the token ids up to it
// (model.md 2.6). Integers throughout, in 64 bits: products use up to 63 of them, so nothing may pass through a double.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/v41_config.h"

namespace deepinfer::model {

// A JSON array of the compressed id of every token: the file that V41Config::engram_token_map names.
// Errors: kNotFound, kIo, kCorruption (naming the file).
Result<std::vector<int32_t>> read_engram_token_map(const std::string& path);
Result<std::vector<int32_t>> engram_token_map_from_json(std::string_view json, const std::string& path);  // path: for messages

class EngramHash {
 public:
  static constexpr int32_t kDead = -1;       // the compressed id of an image position: it and all before it count as padding
  static constexpr int32_t kMaxNgram = 8;    // bounds engram_max_ngram_size (v41_config.cc)

  // token_map: compressed id of every token, engram_compressed_vocab_size different ones. Not looked at if the model has no Engram.
  // Errors: kCorruption (the map does not fit the config; table sizes are not the sums of the primes that the hash uses).
  static Result<EngramHash> create(const V41Config& config, std::vector<int32_t> token_map);

  // Rows of each table, as the config's engram_num_embeddings must say: sums of the primes from engram_vocab_size on.
  static std::vector<int64_t> table_rows(const V41Config& config);

  int32_t num_columns() const { return num_columns_; }  // rows read per position and table: (max n-gram - 1) * heads
  int32_t compress(TokenId token) const { return token_map_[static_cast<size_t>(token)]; }

  // The rows of table `engram_index` that a position reads: ids [num_columns], ordered 2-gram heads, 3-gram heads, …
  // recent: compressed ids of the position and those before it, newest first, engram_max_ngram_size of them; kDead where there is an
  // image or no position.
  void rows(int32_t engram_index, std::span<const int32_t> recent, int64_t* ids) const;

  std::span<const int64_t> multipliers(int32_t engram_index) const {
    const auto length = static_cast<size_t>(max_ngram_);
    return std::span(multipliers_).subspan(static_cast<size_t>(engram_index) * length, length);
  }

 private:
  std::vector<int32_t> token_map_;
  std::vector<int64_t> multipliers_;  // [tables, max n-gram]
  std::vector<int64_t> primes_;       // [tables, columns]
  std::vector<int64_t> offsets_;      // [tables, columns]
  int32_t max_ngram_ = 0, num_heads_ = 0, num_columns_ = 0, pad_ = 0;
};

}  // namespace deepinfer::model
