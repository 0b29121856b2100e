#include "trace/repetition.h"

#include <xxhash.h>

#include <algorithm>

namespace deepinfer::trace {
namespace {

constexpr size_t kMinChunk = 16, kMaxChunk = 128;
constexpr size_t kWindow = 4;          // tokens that decide a cut
constexpr uint64_t kCutMask = 31;      // one cut in 32 places, so chunks of about 48 tokens

bool cuts_after(const TokenId* last, size_t available) {
  if (available < kWindow) return false;
  return (XXH3_64bits(last + 1 - kWindow, kWindow * sizeof(TokenId)) & kCutMask) == 0;
}

}  // namespace

void Repetition::add_chunk(const TokenId* tokens, size_t count) {
  const uint64_t hash = XXH3_64bits_withSeed(tokens, count * sizeof(TokenId), count);
  if (hash > threshold_) return;
  const double rate = static_cast<double>(threshold_) * 0x1p-64;
  if (!seen_.insert(hash).second) repeated_ += static_cast<double>(count) / (threshold_ == UINT64_MAX ? 1 : rate);
  if (seen_.size() <= max_chunks_) return;
  threshold_ /= 2;
  std::erase_if(seen_, [&](uint64_t h) { return h > threshold_; });
}

void Repetition::add(const PreparedRequest& request, int64_t num_known_tokens) {
  for (const TokenRun& run : request.runs) {
    const int64_t end = run.begin + int64_t{run.length};
    const int64_t begin = std::max<int64_t>(run.begin, num_known_tokens);
    // A chunk shorter than the least says nothing: phrases repeat by chance.
    int64_t chunk = begin;
    for (int64_t at = begin; at < end; ++at) {
      const size_t length = static_cast<size_t>(at + 1 - chunk);
      if (length < kMinChunk) continue;
      if (length < kMaxChunk && at + 1 < end && !cuts_after(&request.tokens[static_cast<size_t>(at)], length)) continue;
      add_chunk(&request.tokens[static_cast<size_t>(chunk)], length);
      chunk = at + 1;
    }
  }
}

}  // namespace deepinfer::trace
