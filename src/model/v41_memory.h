// Engram tables and experts that need not fit into memory: what is kept of them is bounded, and what a step is about to use is read ahead. Results never
// depend on it.
//
//   Engram tables  in pages of 4 KiB of the mapped checkpoint. The rows of a step are known from its tokens alone, so reading starts before its
//                  first layer. A page that is not there is read when it is touched; what is evicted leaves the system's cache too.
//   experts        whole, in memory of our own (v41_expert_slots.h). Reading starts when the router has chosen.
//
// Bookkeeping is by one thread of the step, between barriers. What it counts is what is resident: tables are read page by page as
// told (no read-ahead of the kernel's own). Allocates nothing after it is made.
#pragma once

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
#include "model/v41_expert_slots.h"

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
  // in a mapped file), and those of V41ExpertSlots.
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

  V41ExpertSlots* experts() { return experts_.get(); }  // null: they are used where the checkpoint has them
  const V41ExpertSlots* experts() const { return experts_.get(); }

  V41MemoryCounts counts() const;
  // Bytes in the system's cache of bounded tables, without pages that they share with something else; slow, for tests and measurements.
  int64_t resident_table_bytes() const;

 private:
  struct Range {
    const io::MappedFile* file = nullptr;
    std::span<const std::byte> bytes;
  };
  struct Table {
    Range codes, scales;
    int64_t row_codes = 0, row_scales = 0;  // bytes of a row
  };

  V41Memory() = default;
  Result<> add_tables(const V41Config& config, const Checkpoint& checkpoint, std::optional<uint64_t> bytes);
  void want_pages(const Range& range, int64_t first_key, int64_t begin, int64_t end);
  void evict_page(int64_t key) const;

  std::vector<Table> tables_;
  std::optional<LruKeys> pages_;  // keys count the pages of codes and scales of one table after the other; none: no bound
  std::vector<int64_t> first_page_;
  int64_t pages_per_position_ = 0, pages_read_ = 0;

  std::unique_ptr<V41ExpertSlots> experts_;
};

}  // namespace deepinfer::model
