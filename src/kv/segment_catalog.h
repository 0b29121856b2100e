// kv/segment_catalog.h: the segment files that a store knows of, and the index of their blocks. Bookkeeping without I/O; not thread-safe: the
// store's mutex guards it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/disk.h"
#include "kv/segment_format.h"
#include "kv/store_index.h"

namespace deepinfer::kv {

// A file that is opened when it is first read. Shared by the catalog and the reads in flight, which keep it open over its removal.
class SegmentFile {
 public:
  explicit SegmentFile(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  Result<std::shared_ptr<io::File>> open(io::Disk& disk);
  void close();  // reads in flight go on

 private:
  const std::string path_;
  std::mutex mu_;
  std::shared_ptr<io::File> file_;
};

struct Segment {
  enum class State : uint8_t {
    kActive,   // this store appends to it
    kGrowing,  // another live writer does
    kSealed,   // nobody will
  };
  std::shared_ptr<SegmentFile> file;
  SegmentHeader header;
  State state = State::kSealed;
  bool indexed = false;     // its blocks are ours to serve
  bool shared = false;      // Tier::kShared
  uint64_t allocated_bytes = 0;
  uint64_t size = 0;        // when it was last read
  uint32_t num_blocks = 0;
  uint32_t head = StoreIndex::kNone;
  int64_t expires_s = 0;    // on the store's clock
  int64_t last_use_s = 0;   // the latest hit of one of its blocks, or write
  double use_sum_s = 0;     // of the last uses of its blocks
  int64_t touched_s = 0;    // last_use_s as the file's time of change says it
  uint64_t end_page = 1;    // of a growing one: how far it was read
};
inline int64_t mean_use_s(const Segment& segment) {
  return segment.num_blocks == 0 ? segment.last_use_s : static_cast<int64_t>(segment.use_sum_s / segment.num_blocks);
}
using SegmentId = uint32_t;
constexpr SegmentId kNoSegment = StoreIndex::kNone;

class SegmentCatalog {
 public:
  SegmentId add(Segment segment);               // its path must be new
  SegmentId find_path(const std::string& path) const;
  Segment& at(SegmentId id) { return *segments_[id]; }
  const Segment& at(SegmentId id) const { return *segments_[id]; }
  std::vector<SegmentId> ids() const;           // ascending
  size_t num_segments() const { return by_path_.size(); }

  void add_block(SegmentId id, const FooterEntry& block, int64_t last_use_s);
  // A block of it was hit.
  void touch(uint32_t entry, int64_t now_s);
  // Forgets a segment and its blocks; returns how many blocks could be found until now.
  size_t remove(SegmentId id);
  void set_allocated(SegmentId id, uint64_t bytes);
  uint64_t used_bytes() const { return used_bytes_; }  // of all segments

  StoreIndex& index() { return index_; }
  const StoreIndex& index() const { return index_; }

 private:
  std::vector<std::unique_ptr<Segment>> segments_;
  std::vector<SegmentId> free_;
  std::unordered_map<std::string, SegmentId> by_path_;
  StoreIndex index_;
  uint64_t used_bytes_ = 0;
};

}  // namespace deepinfer::kv
