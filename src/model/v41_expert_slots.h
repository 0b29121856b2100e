// Routed experts of a DeepSeek-V4.1 model that need not fit into memory: as many as a bound holds lie in slots of our own, in large pages, and are read into
// them around the system's cache when the router has chosen. The least recently chosen make room. What is in a slot has the bytes of the
// checkpoint, so results do not depend on any of it.
//
// One thread of the step asks, between barriers; all await what they compute with. Allocates nothing after it is made.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/direct_file.h"
#include "io/read_queue.h"
#include "kernels/pages.h"
#include "model/checkpoint.h"
#include "model/lru_keys.h"
#include "model/v41_config.h"
#include "model/v41_weights.h"

namespace deepinfer::model {

class V41ExpertSlots {
 public:
  // checkpoint: bound with config; outlives the result. bytes: of slots and nothing else.
  // Errors: kInvalidArgument (a bound that does not hold two experts; the bytes are not in a mapped file), kResourceExhausted (more than memory has free), kIo.
  static Result<std::unique_ptr<V41ExpertSlots>> create(const V41Config& config, const Checkpoint& checkpoint, uint64_t bytes);

  // Experts that fit at a time; a layer for which more were chosen is computed in turns.
  int32_t experts_at_a_time() const { return std::max(1, lru_.capacity() / 2); }
  // Starts reading chosen experts of a layer, distinct and in the order in which they are used: those of the turn at hand and of the next. What others
  // were asked for may go: nobody uses it any more.
  void want(int32_t layer, std::span<const int32_t> chosen);
  bool is_read(int32_t layer, int32_t expert) const;
  // The matrices of an expert of the turn at hand, once they have been read. Any thread. If they cannot be, they hold any numbers, and take_error() is not empty.
  V41Expert await(int32_t layer, int32_t expert) const;
  // Why what was computed since the last call is not to be used.
  Result<> take_error() { return queue_->take_error(); }

  int64_t slot_bytes() const { return slot_bytes_; }
  int64_t num_wanted() const { return num_wanted_; }
  int64_t num_read() const { return num_read_; }  // the rest was there already
  // Bytes in memory: of slots, and what the system's cache holds of experts without pages that they share with something else. Slow, for tests and measurements.
  int64_t resident_bytes() const;

 private:
  static constexpr int kParts = 6;  // codes and scales of w1, w3, w2
  // Neighbours in a file, read together: from the page in which they begin to that in which they end.
  struct Run {
    size_t file = 0;              // of files_
    uint64_t begin = 0, end = 0;  // of the first and the last part in the file
    uint64_t in_slot = 0;         // where its first page begins there
    uint64_t first_page() const { return io::pages_down(begin); }
    uint64_t num_bytes() const { return end - first_page(); }  // to be read
    uint64_t page_bytes() const { return io::pages_up(num_bytes()); }
  };
  struct Expert {
    std::array<uint64_t, kParts> parts{};  // where they begin in a slot
    std::array<Run, kParts> runs{};
    size_t num_runs = 0;
    uint64_t slot_bytes() const { return num_runs == 0 ? 0 : runs[num_runs - 1].in_slot + runs[num_runs - 1].page_bytes(); }
  };

  V41ExpertSlots(const V41Config& config, std::vector<Expert> experts, int32_t capacity, uint64_t slot_bytes);
  static Result<Expert> find(const Checkpoint& checkpoint, const std::string& prefix, std::vector<const io::MappedFile*>& mappings);
  const io::MappedFile& mapped(const Run& run) const { return *mappings_[run.file]; }
  std::span<const std::byte> bytes_of(const Run& run) const { return mapped(run).bytes().subspan(run.begin, run.end - run.begin); }
  int64_t key_of(int32_t layer, int32_t expert) const { return int64_t{layer} * config_.n_routed_experts + expert; }
  std::byte* slot(int32_t number) const { return memory_.data() + number * slot_bytes_; }
  void leave_mappings() const;
  void read(int64_t key, int32_t slot);

  const V41Config config_;
  const std::vector<Expert> experts_;  // [layers, experts]
  std::vector<const io::MappedFile*> mappings_;
  std::vector<io::DirectFile> files_;  // of the same
  LruKeys lru_;
  const int64_t slot_bytes_;
  const Pages memory_;  // [capacity, slot_bytes_]
  int64_t num_wanted_ = 0, num_read_ = 0;
  std::unique_ptr<io::ReadQueue> queue_;  // the last: its threads write into the memory
};

}  // namespace deepinfer::model
