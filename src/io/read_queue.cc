#include "io/read_queue.h"

#include <pthread.h>
#include <algorithm>
#include <utility>

namespace deepinfer::io {

ReadQueue::ReadQueue(int32_t num_places) : ReadQueue(num_places, Options()) {}

ReadQueue::ReadQueue(int32_t num_places, const Options& options)
    : options_(options), places_(static_cast<size_t>(num_places)), asked_(static_cast<size_t>(num_places)) {
  CHECK(options.piece_bytes > 0 && options.piece_bytes % kPageBytes == 0);
  for (int i = 0; i < options.num_threads; ++i) threads_.emplace_back([this] { work(); });
}

ReadQueue::~ReadQueue() {
  {
    const MutexLock lock(mu_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadQueue::read(int32_t number, std::span<const Part> parts) {
  CHECK(!parts.empty() && parts.size() <= kMaxParts);
  await(number);
  Place& place = places_[static_cast<size_t>(number)];
  {
    const MutexLock lock(mu_);
    place.state.store(State::kReading, std::memory_order_relaxed);
    std::copy(parts.begin(), parts.end(), place.parts.begin());
    place.num_parts = parts.size();
    place.failed = false;
    place.num_unread = 0;
    for (const Part& part : parts) place.num_unread += static_cast<int32_t>(num_pieces(part));
    CHECK(num_asked_ < asked_.size());
    asked_[(first_ + num_asked_++) % asked_.size()] = number;
  }
  wake_.notify_all();
}

void ReadQueue::await(int32_t number) const { places_[static_cast<size_t>(number)].state.wait(State::kReading, std::memory_order_acquire); }

Result<> ReadQueue::take_error() {
  const MutexLock lock(mu_);
  if (!error_) return {};
  return *std::exchange(error_, std::nullopt);
}

ReadQueue::Piece ReadQueue::next_piece() {
  Place& place = places_[static_cast<size_t>(asked_[first_])];
  Part part = place.parts[part_];
  const size_t begin = piece_ * options_.piece_bytes;
  part.offset += begin;
  part.needed = std::min(part.needed - begin, options_.piece_bytes);
  part.out = part.out.subspan(begin, std::min(part.out.size() - begin, options_.piece_bytes));
  if (++piece_ == num_pieces(place.parts[part_])) {
    piece_ = 0;
    if (++part_ == place.num_parts) {
      part_ = 0;
      first_ = (first_ + 1) % asked_.size();
      --num_asked_;
    }
  }
  return {&place, part};
}

void ReadQueue::work() {
  pthread_setname_np(pthread_self(), "reads");
  mu_.lock();
  for (;;) {
    while (!stopping_ && num_asked_ == 0) wake_.wait(mu_);
    if (stopping_) break;
    const Piece piece = next_piece();
    Place& place = *piece.place;
    if (!error_) {
      mu_.unlock();
      Result<> read = piece.part.file->read(piece.part.offset, piece.part.needed, piece.part.out);
      mu_.lock();
      place.failed |= !read;
      if (!read && !error_) error_ = std::move(read).error();
    } else {
      place.failed = true;
    }
    if (--place.num_unread > 0) continue;
    place.state.store(place.failed ? State::kFailed : State::kRead, std::memory_order_release);
    place.state.notify_all();
  }
  mu_.unlock();
}

}  // namespace deepinfer::io
