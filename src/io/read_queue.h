// A few threads that read parts of files into places in memory, in the order in which they were asked for, in pieces, several of which are under
// way at a time. One thread asks; any thread waits. A place is a number and what is read into it last; nothing is allocated after the start unless
// a read fails. The alternative that lost, here as for blocks: io_uring (docs/decisions/store-io.md).
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/thread_annotations.h"
#include "io/direct_file.h"

namespace deepinfer::io {

class ReadQueue {
 public:
  static constexpr size_t kMaxParts = 6;  // of a place
  struct Options {
    int num_threads = 4;
    size_t piece_bytes = size_t{1} << 20;  // a multiple of kPageBytes
  };
  struct Part {
    const DirectFile* file;
    uint64_t offset;           // with needed and out as for DirectFile::read()
    size_t needed;
    std::span<std::byte> out;
  };

  ReadQueue(int32_t num_places, const Options& options);
  explicit ReadQueue(int32_t num_places);
  ~ReadQueue();  // what has not begun is dropped, what has is waited for
  ReadQueue(const ReadQueue&) = delete;
  ReadQueue& operator=(const ReadQueue&) = delete;

  // Begins to read the parts of a place, at least one and at most kMaxParts; nobody uses what is there any more. If the place is being read, waits for that.
  void read(int32_t place, std::span<const Part> parts);
  // Whether all that was asked for is there.
  bool is_read(int32_t place) const { return places_[static_cast<size_t>(place)].state.load(std::memory_order_acquire) == State::kRead; }
  bool has_failed(int32_t place) const { return places_[static_cast<size_t>(place)].state.load(std::memory_order_acquire) == State::kFailed; }
  // Until all that was asked for is there, or has failed. Sleeps.
  void await(int32_t place) const;
  // The first error since the last call. After one, what was asked for fails unread until this is called: a disk that does not answer is not asked again and again.
  Result<> take_error();

 private:
  enum class State : int32_t { kNothing, kReading, kRead, kFailed };
  struct Place {
    std::atomic<State> state{State::kNothing};
    std::array<Part, kMaxParts> parts;  // written by read() alone, and not while it is read
    size_t num_parts = 0;
    int32_t num_unread = 0;  // pieces; guarded by mu_, like what follows
    bool failed = false;
  };
  struct Piece {
    Place* place;
    Part part;
  };

  void work();
  Piece next_piece() REQUIRES(mu_);
  size_t num_pieces(const Part& part) const { return (part.needed + options_.piece_bytes - 1) / options_.piece_bytes; }

  const Options options_;
  std::vector<Place> places_;
  Mutex mu_;
  std::condition_variable_any wake_;
  std::vector<int32_t> asked_ GUARDED_BY(mu_);  // a ring: a place is in it once at most
  size_t first_ GUARDED_BY(mu_) = 0, num_asked_ GUARDED_BY(mu_) = 0;
  size_t part_ GUARDED_BY(mu_) = 0, piece_ GUARDED_BY(mu_) = 0;  // of the first place, that is read next
  std::optional<Error> error_ GUARDED_BY(mu_);
  bool stopping_ GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace deepinfer::io
