// Engram tables and experts that need not fit into memory. They stay in the mapped checkpoint; this decides which of their pages are kept,
// reads ahead what a step is about to use, and gives back the least recently used beyond a bound. Results never depend on it: a page that
// is not there is read when it is touched.
//
//   Engram tables  in pages of 4 KiB. The rows of a step are known from its tokens alone, so reading starts before its first layer.
//   experts        whole. Reading starts when the router has chosen.
//
// Bookkeeping is by one thread of the step, between barriers. What it counts is what is resident: the ranges are read page by page as
// told (no read-ahead of the kernel's own), and what is evicted leaves the system's cache too. Allocates nothing after it is made.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/mapped_file.h"
#include "model/checkpoint.h"
#include "model/lru_keys.h"
#include "model/v41_config.h"

namespace deepinfer::model {

struct V41MemoryOptions {
  std::optional<uint64_t> engram_bytes;  // of all tables together; none: as the system likes
  std::optional<uint64_t> expert_bytes;  // of the routed experts of all layers; likewise
  bool load = false;                     // what is not read on demand (reads_on_demand()) is copied when the model is loaded
};

struct V41MemoryCounts {
  int64_t experts_wanted = 0, experts_read = 0;  // the difference was there already
  int64_t pages_read = 0;                        // of Engram tables
};

class V41Memory {
 public:
  // Tables from this size on are read ahead even without a bound.
  static constexpr uint64_t kLargeTableBytes = uint64_t{1} << 30;

  // checkpoint: bound with config; outlives the result, which is null if there is nothing to do: no bound, and no large table.
  // Errors: kInvalidArgument (a bound too small for one step: two experts, or the rows of two positions in every table; the bytes are not
  // in a mapped file).
  static Result<std::unique_ptr<V41Memory>> create(const V41Config& config, const Checkpoint& checkpoint, const V41MemoryOptions& limits);

  // Whether a tensor stays in its file, to be read ahead of use.
  bool reads_on_demand(std::string_view tensor_name) const;
  bool reads_tables() const { return !tables_.empty(); }  // false: what follows about tables does not apply
  bool bounds_tables() const { return pages_.has_value(); }
  // Positions whose rows of a table fit at a time; a longer step is walked in pieces. num_rows without a bound.
  int64_t positions_at_a_time(int64_t num_rows) const;
  // Starts reading rows of a table; they are kept until as many others have been asked for as the bound holds. ids: those of at most
  // positions_at_a_time() positions. With a bound, to be called again before they are used: what is touched must have been counted.
  void want_rows(int32_t table, std::span<const int64_t> ids);

  bool bounds_experts() const { return experts_.has_value(); }
  // Experts that fit at a time; a layer for which more were chosen is computed in turns.
  int32_t experts_at_a_time() const { return std::max(1, experts_->capacity() / 2); }
  // Starts reading chosen experts of a layer, distinct and in the order in which they are used: those of the turn at hand and of the next.
  void want_experts(int32_t layer, std::span<const int32_t> chosen);

  const V41MemoryCounts& counts() const { return counts_; }
  // Bytes in the system's cache of what is bounded, without pages that it shares with something else; slow, for tests and measurements.
  int64_t resident_table_bytes() const;
  int64_t resident_expert_bytes() const;

 private:
  struct Range {
    const io::MappedFile* file = nullptr;
    std::span<const std::byte> bytes;
  };
  struct Table {
    Range codes, scales;
    int64_t row_codes = 0, row_scales = 0;  // bytes of a row
  };
  static constexpr int kExpertParts = 6;  // codes and scales of three matrices
  using Expert = std::array<Range, kExpertParts>;

  V41Memory() = default;
  Result<> add_tables(const V41Config& config, const Checkpoint& checkpoint, std::optional<uint64_t> bytes);
  Result<> add_experts(const V41Config& config, const Checkpoint& checkpoint, uint64_t bytes);
  void want_pages(const Range& range, int64_t first_key, int64_t begin, int64_t end);
  void evict_page(int64_t key) const;

  std::vector<Table> tables_;
  std::optional<LruKeys> pages_;  // keys count the pages of codes and scales of one table after the other; none: no bound
  std::vector<int64_t> first_page_;
  int64_t pages_per_position_ = 0;

  std::vector<Expert> expert_ranges_;  // [layers, experts]
  std::optional<LruKeys> experts_;
  int32_t experts_per_layer_ = 0;
  V41MemoryCounts counts_;
};

}  // namespace deepinfer::model
