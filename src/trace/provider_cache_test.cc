// What hosted caches find, counted by hand.
#include "trace/provider_cache.h"

#include <gtest/gtest.h>

namespace deepinfer::trace {
namespace {

constexpr int kHostedBlock = 64;
constexpr int64_t kSecondUs = 1'000'000;

class ProviderCache : public testing::Test {
 protected:
  // A prompt that begins with `same` blocks that all prompts share and goes on with `own` ones of that name.
  void ask(int64_t second, uint32_t same, uint32_t own, uint64_t name, const char* tenant = "one", uint32_t head_blocks = 0, int64_t tail = 0) {
    std::vector<PrefixKey> keys;
    for (uint64_t i = 0; i < same + own; ++i) {
      const uint64_t block = i < same ? i : name << 32 | i;
      keys.push_back(chain_key(keys.empty() ? PrefixKey{} : keys.back(), std::as_bytes(std::span(&block, 1))));
    }
    TracedRequest r;
    r.time_us = second * kSecondUs;
    r.tenant = trace_.tenants.id(tenant);
    r.head_blocks = head_blocks;
    r.input_tokens = static_cast<int32_t>(int64_t{same + own} * kHostedBlock + tail);
    trace_.add(r, keys);
  }
  std::pair<double, double> read_and_written(const CacheRule& rule) const {
    const ProviderCounts counts = replay_provider(trace_, trace_.by_time(), rule);
    return {counts.read_by_model[0], counts.written_by_model[0]};
  }
  double read(const CacheRule& rule) const { return read_and_written(rule).first; }

  RequestTrace trace_{kHostedBlock, 1 << 20};
};

TEST_F(ProviderCache, HitsComeInStepsFromTheLeastLengthOn) {
  ask(0, 19, 1, 1);
  ask(1, 19, 1, 2);  // 19 blocks of 64: 1,216 tokens in common
  EXPECT_EQ(read({.min_tokens = 64, .step_tokens = 64, .retention_us = 300 * kSecondUs}), 1216);
  EXPECT_EQ(read({.min_tokens = 1024, .step_tokens = 128, .retention_us = 300 * kSecondUs}), 1152);
  EXPECT_EQ(read({.min_tokens = 1152, .step_tokens = 128, .retention_us = 300 * kSecondUs}), 1152) << "the least length itself is cached";
  EXPECT_EQ(read({.min_tokens = 1153, .step_tokens = 128, .retention_us = 300 * kSecondUs}), 0);
}

TEST_F(ProviderCache, APrefixIsKeptThatLongAfterItsLastUse) {
  ask(0, 20, 0, 1);
  ask(300, 20, 0, 1);
  ask(600, 20, 0, 1);
  ask(901, 20, 0, 1);
  EXPECT_EQ(read({.step_tokens = 64, .retention_us = 300 * kSecondUs}), 2 * 1280) << "a use renews; a second too late is too late";
  EXPECT_EQ(read({.step_tokens = 64, .retention_us = 300 * kSecondUs - 1}), 0);
}

TEST_F(ProviderCache, TenantsShareNothing) {
  ask(0, 20, 0, 1, "one");
  ask(1, 20, 0, 1, "two");
  ask(2, 20, 0, 1, "two");
  EXPECT_EQ(read({.step_tokens = 64, .retention_us = 300 * kSecondUs}), 1280);
}

TEST_F(ProviderCache, OnlyMarkedEndsAreStoredAndWhatIsNewIsWritten) {
  const CacheRule rule{.min_tokens = 1024, .step_tokens = 1, .retention_us = 300 * kSecondUs, .breakpoints = true};
  ask(0, 20, 5, 1, "one", 16);                               // writes 25 blocks; marked: 16 and 25
  ask(1, 20, 5, 2, "one", 16);                               // shares 20, finds the head of 16, writes 9
  EXPECT_EQ(read_and_written(rule), std::pair(1024.0, (25.0 + 9) * kHostedBlock));
  ask(2, 25, 3, 3, "two", 16, 10);                           // another's cache; its last 10 tokens fill no block
  EXPECT_EQ(read_and_written(rule), std::pair(1024.0, (25.0 + 9 + 28) * kHostedBlock));
  ask(3, 10, 5, 4, "one", 10);                               // 15 blocks: below the least length nothing is written
  EXPECT_EQ(read_and_written(rule), std::pair(1024.0, (25.0 + 9 + 28) * kHostedBlock));
  ask(4, 20, 8, 1, "one", 0);                                // goes on behind the end of the first one
  EXPECT_EQ(read_and_written(rule), std::pair(1024.0 + 1600, (25.0 + 9 + 28 + 3) * kHostedBlock));
  ask(5, 16, 0, 5, "three");                                 // the least length itself is written
  EXPECT_EQ(read_and_written(rule), std::pair(1024.0 + 1600, (25.0 + 9 + 28 + 3 + 16) * kHostedBlock));
}

}  // namespace
}  // namespace deepinfer::trace
