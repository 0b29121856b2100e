#include "disk_ways.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <functional>
#include <liburing.h>
#include <memory>
#include <thread>
#include <unistd.h>

namespace deepinfer::bench {
namespace {

constexpr uint64_t kPiece = uint64_t{4} << 20;

struct FreeMemory {
  void operator()(char* data) const { std::free(data); }
};
using Memory = std::unique_ptr<char, FreeMemory>;

Memory pieces(size_t count) {
  Memory memory(static_cast<char*>(std::aligned_alloc(4096, count * kPiece)));
  for (size_t i = 0; i < count * kPiece; ++i) memory.get()[i] = static_cast<char>(i * 2654435761u >> 13);
  return memory;
}

// True: all of it was moved.
using Way = std::function<bool(int fd, bool writes, uint64_t num_bytes)>;

bool by_threads(int count, int fd, bool writes, uint64_t num_bytes) {
  std::atomic<uint64_t> next{0};
  std::atomic<bool> good{true};
  const Memory memory = pieces(static_cast<size_t>(count));
  const auto work = [&](int thread) {
    char* const piece = memory.get() + static_cast<size_t>(thread) * kPiece;
    for (uint64_t at = next.fetch_add(kPiece); at < num_bytes; at = next.fetch_add(kPiece)) {
      const auto offset = static_cast<off_t>(at);
      if ((writes ? ::pwrite(fd, piece, kPiece, offset) : ::pread(fd, piece, kPiece, offset)) != static_cast<ssize_t>(kPiece)) good = false;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < count; ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads) thread.join();
  return good;
}

bool by_ring(int depth, int fd, bool writes, uint64_t num_bytes) {
  io_uring ring;
  if (io_uring_queue_init(static_cast<unsigned>(depth), &ring, 0) != 0) return false;
  const Memory memory = pieces(static_cast<size_t>(depth));
  uint64_t next = 0, done = 0;
  bool good = true;
  const auto submit = [&](size_t slot) {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring);
    char* const piece = memory.get() + slot * kPiece;
    writes ? io_uring_prep_write(entry, fd, piece, kPiece, next) : io_uring_prep_read(entry, fd, piece, kPiece, next);
    io_uring_sqe_set_data64(entry, slot);
    next += kPiece;
  };
  for (int i = 0; i < depth && next < num_bytes; ++i) submit(static_cast<size_t>(i));
  while (good && done < num_bytes) {
    io_uring_cqe* end = nullptr;
    good = io_uring_submit_and_wait(&ring, 1) >= 0 && io_uring_peek_cqe(&ring, &end) == 0 && end->res == static_cast<int>(kPiece);
    if (!good) break;
    const size_t slot = io_uring_cqe_get_data64(end);
    io_uring_cqe_seen(&ring, end);
    done += kPiece;
    if (next < num_bytes) submit(slot);
  }
  io_uring_queue_exit(&ring);
  return good;
}

Result<double> timed(const Way& way, const std::string& path, bool writes, uint64_t num_bytes) {
  const int fd = ::open(path.c_str(), O_DIRECT | O_CLOEXEC | (writes ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY), 0600);
  if (fd < 0) return Error{Code::kIo, path + ": " + std::strerror(errno)};
  const auto begin = std::chrono::steady_clock::now();
  const bool good = way(fd, writes, num_bytes) && (!writes || ::fdatasync(fd) == 0);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ::close(fd);
  if (!good) return Error{Code::kIo, path + ": could not be " + (writes ? "written" : "read")};
  return static_cast<double>(num_bytes) / seconds;
}

}  // namespace

Result<std::vector<DiskWay>> measure_disk_ways(const std::string& folder, uint64_t num_bytes, int num_rounds) {
  const std::string path = folder + "/disk_ways";
  num_bytes = (num_bytes + kPiece - 1) / kPiece * kPiece;
  std::vector<DiskWay> results;
  std::vector<Way> ways;
  const auto add = [&](std::string name, bool (*way)(int, int, bool, uint64_t), int count) {
    results.push_back({.name = std::move(name)});
    ways.push_back([=](int fd, bool writes, uint64_t bytes) { return way(count, fd, writes, bytes); });
  };
  add("one request after the other", by_threads, 1);
  for (const int count : {2, 4}) add(fmt::format("{} threads", count), by_threads, count);
  for (const int depth : {2, 4, 16}) add(fmt::format("io_uring, {} under way", depth), by_ring, depth);
  for (int round = 0; round < num_rounds; ++round) {
    for (size_t i = 0; i < ways.size(); ++i) {
      DI_TRY(const double write, timed(ways[i], path, true, num_bytes));
      DI_TRY(const double read, timed(ways[i], path, false, num_bytes));
      results[i].write_bytes_per_s.push_back(write);
      results[i].read_bytes_per_s.push_back(read);
    }
  }
  ::unlink(path.c_str());
  return results;
}

}  // namespace deepinfer::bench
