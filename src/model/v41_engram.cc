#include "model/v41_engram.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <simdjson.h>

#include "base/check.h"
#include "io/mapped_file.h"

namespace deepinfer::model {
namespace {

// numpy's default_rng(seed).integers(0, bound): SeedSequence, PCG64 (XSL-RR) and Lemire's bounded draw in 64 bits. The multipliers of
// released checkpoints were drawn with it and are stored nowhere.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(uint64_t seed) {
    const auto words = seed_words(seed);
    const auto join = [&](int i) {  // two 64-bit words, the high one first
      return static_cast<unsigned __int128>(uint64_t{words[i + 1]} << 32 | words[i]) << 64 | (uint64_t{words[i + 3]} << 32 | words[i + 2]);
    };
    increment_ = join(4) << 1 | 1;
    step();
    state_ += join(0);
    step();
  }

  uint64_t below(uint64_t bound) {  // bound > 2^32: numpy draws smaller ones from 32 bits
    CHECK(bound > uint64_t{1} << 32);
    unsigned __int128 product = static_cast<unsigned __int128>(next()) * bound;
    if (static_cast<uint64_t>(product) < bound) {
      const uint64_t threshold = (~uint64_t{0} - (bound - 1)) % bound;
      while (static_cast<uint64_t>(product) < threshold) product = static_cast<unsigned __int128>(next()) * bound;
    }
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  static std::array<uint32_t, 8> seed_words(uint64_t seed) {
    std::array<uint32_t, 4> pool{};
    uint32_t hash = 0x43b0d7e5;
    const auto mix_in = [&](uint32_t value) {
      value ^= hash;
      hash *= 0x931e8875;
      value *= hash;
      return value ^ value >> 16;
    };
    pool = {mix_in(static_cast<uint32_t>(seed)), mix_in(static_cast<uint32_t>(seed >> 32)), mix_in(0), mix_in(0)};
    for (size_t from = 0; from < 4; ++from)
      for (size_t to = 0; to < 4; ++to) {
        if (from == to) continue;
        const uint32_t mixed = 0xca01f9dd * pool[to] - 0x4973f715 * mix_in(pool[from]);
        pool[to] = mixed ^ mixed >> 16;
      }
    std::array<uint32_t, 8> words;
    hash = 0x8b51f9dd;
    for (size_t i = 0; i < 8; ++i) {
      uint32_t value = pool[i % 4] ^ hash;
      hash *= 0x58f38ded;
      value *= hash;
      words[i] = value ^ value >> 16;
    }
    return words;
  }

  void step() {
    constexpr unsigned __int128 kMultiplier = static_cast<unsigned __int128>(0x2360ED051FC65DA4) << 64 | 0x4385DF649FCCF645;
    state_ = state_ * kMultiplier + increment_;
  }
  uint64_t next() {
    step();
    const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    return std::rotr(folded, static_cast<int>(state_ >> 122));
  }

  unsigned __int128 state_ = 0, increment_ = 0;
};

bool is_prime(int64_t n) {
  if (n < 4) return n >= 2;
  if (n % 2 == 0) return false;
  for (int64_t d = 3; d * d <= n; d += 2)
    if (n % d == 0) return false;
  return true;
}

// The primes of all tables and columns are one ascending run: a search that restarts and skips used ones continues it.
class Primes {
 public:
  explicit Primes(int64_t from) : candidate_(from) {}
  int64_t next() {
    while (!is_prime(candidate_)) ++candidate_;
    return candidate_++;
  }

 private:
  int64_t candidate_;
};

constexpr size_t kMaxMapBytes = 64u << 20;

}  // namespace

std::vector<int64_t> EngramHash::table_rows(const V41Config& config) {
  const int32_t columns = (config.engram_max_ngram_size - 1) * config.engram_n_heads;
  Primes primes(config.engram_vocab_size);
  std::vector<int64_t> rows(config.engram_layer_ids.size(), 0);
  for (int64_t& sum : rows)
    for (int32_t column = 0; column < columns; ++column) sum += primes.next();
  return rows;
}

Result<std::vector<int32_t>> engram_token_map_from_json(std::string_view json, const std::string& path) {
  simdjson::dom::parser parser;
  simdjson::dom::array ids;
  if (parser.parse(simdjson::padded_string(json)).get(ids) != simdjson::SUCCESS) return Error{Code::kCorruption, fmt::format("{}: not a JSON array", path)};
  std::vector<int32_t> map;
  for (const simdjson::dom::element element : ids) {
    int64_t id = 0;
    if (element.get(id) != simdjson::SUCCESS || id < 0 || id >= V41Config::kMaxVocab)
      return Error{Code::kCorruption, fmt::format("{}: entry {} is not an id", path, map.size())};
    map.push_back(static_cast<int32_t>(id));
  }
  return map;
}

Result<std::vector<int32_t>> read_engram_token_map(const std::string& path) {
  DI_TRY(const std::string text, io::read_small_file(path, kMaxMapBytes));
  return engram_token_map_from_json(text, path);
}

Result<EngramHash> EngramHash::create(const V41Config& config, std::vector<int32_t> token_map) {
  CHECK(config.engram_max_ngram_size <= kMaxNgram);
  if (config.engram_layer_ids.empty()) return EngramHash();
  if (token_map.size() < static_cast<size_t>(config.vocab_size))
    return Error{Code::kCorruption, fmt::format("Engram token map has {} entries for a vocabulary of {}", token_map.size(), config.vocab_size)};
  for (const int32_t id : token_map)
    if (id < 0 || id >= config.engram_compressed_vocab_size)
      return Error{Code::kCorruption, fmt::format("Engram token map holds {}, outside 0..{}", id, config.engram_compressed_vocab_size - 1)};
  // Hashes of ids that were handed out otherwise are those of other tokens: a tokenizer of another release shows here and nowhere else.
  const int32_t num_classes = 1 + *std::max_element(token_map.begin(), token_map.end());
  if (num_classes != config.engram_compressed_vocab_size)
    return Error{Code::kCorruption, fmt::format("Engram token map has {} compressed ids, engram_compressed_vocab_size is {}: it is not of the model's own tokenizer", num_classes,
                                                config.engram_compressed_vocab_size)};
  EngramHash hash;
  hash.max_ngram_ = config.engram_max_ngram_size;
  hash.num_heads_ = config.engram_n_heads;
  hash.num_columns_ = (hash.max_ngram_ - 1) * hash.num_heads_;
  hash.pad_ = token_map[static_cast<size_t>(config.engram_pad_token_id)];
  hash.token_map_ = std::move(token_map);
  Primes primes(config.engram_vocab_size);
  const uint64_t bound = static_cast<uint64_t>(std::max<int64_t>(1, INT64_MAX / config.engram_compressed_vocab_size / 2));
  for (size_t table = 0; table < config.engram_layer_ids.size(); ++table) {
    NumpyGenerator generator(10007ull * static_cast<uint64_t>(config.engram_layer_ids[table]));
    for (int32_t k = 0; k < hash.max_ngram_; ++k) hash.multipliers_.push_back(static_cast<int64_t>(2 * generator.below(bound) + 1));
    int64_t offset = 0;
    for (int32_t column = 0; column < hash.num_columns_; ++column) {
      hash.primes_.push_back(primes.next());
      hash.offsets_.push_back(offset);
      offset += hash.primes_.back();
    }
    if (offset != config.engram_num_embeddings[table])
      return Error{Code::kCorruption, fmt::format("engram_num_embeddings is {} for layer {}, but its primes add up to {}",
                                                  config.engram_num_embeddings[table], config.engram_layer_ids[table], offset)};
  }
  return hash;
}

void EngramHash::rows(int32_t engram_index, std::span<const int32_t> recent, int64_t* ids) const {
  DCHECK(recent.size() == static_cast<size_t>(max_ngram_));
  const auto multiplier = multipliers(engram_index);
  const size_t first = static_cast<size_t>(engram_index) * static_cast<size_t>(num_columns_);
  bool dead = false;
  uint64_t mixed = 0;
  for (int32_t k = 0; k < max_ngram_; ++k) {
    const size_t at = static_cast<size_t>(k);
    dead |= recent[at] == kDead;
    mixed ^= static_cast<uint64_t>(dead ? pad_ : recent[at]) * static_cast<uint64_t>(multiplier[at]);
    if (k == 0) continue;
    for (int32_t head = 0; head < num_heads_; ++head) {
      const size_t column = static_cast<size_t>(k - 1) * static_cast<size_t>(num_heads_) + static_cast<size_t>(head);
      // Ids and multipliers are such that products stay below 2^63, so the residue is that of the signed number too.
      ids[column] = static_cast<int64_t>(mixed % static_cast<uint64_t>(primes_[first + column])) + offsets_[first + column];
    }
  }
}

}  // namespace deepinfer::model
