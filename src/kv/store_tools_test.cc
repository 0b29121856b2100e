#include "kv/store_tools.h"

#include <gtest/gtest.h>

#include "kv/store_world.h"

namespace deepinfer::kv {
namespace {

struct ToolsWorld : StoreWorld {
  ToolsWorld() {
    open();
    put(chain_of(1, 10), 0);
    put(chain_of(2, 5), 1);
    const std::string rows = rows_of(chain_of(3, 1)[0]);
    store->publish(tag("other"), chain_of(3, 1)[0], std::as_bytes(std::span(rows)));
    store.reset();
  }
};

TEST(StoreTools, AReportAddsUp) {
  ToolsWorld world;
  uint64_t last = 0, total = 0;
  const auto report = report_store(*world.disk, "/cache", world.time->wall, [&](uint64_t done, uint64_t all) { last = done, total = all; });
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->total.num_blocks, 16u);
  EXPECT_EQ(report->groups.size(), 3u);
  EXPECT_EQ(last, total);
  EXPECT_EQ(report->total.bytes, total);
  EXPECT_EQ(report->bytes_by_last_use[0], total);
  EXPECT_EQ(report->num_unsealed, 0u);
  EXPECT_EQ(report->total.oldest_s, world.time->wall) << "when blocks were written, not when their time bucket began";
  EXPECT_EQ(report->total.newest_s, world.time->wall);
  EXPECT_FALSE(report_store(*world.disk, "/nowhere", 0, nullptr));
}

TEST(StoreTools, VerifyQuarantinesWhatIsDamagedAndNothingElse) {
  ToolsWorld world;
  auto good = verify_store(*world.disk, "/cache", std::nullopt, nullptr);
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->num_blocks, 16u);
  EXPECT_TRUE(good->quarantined.empty());
  const size_t num_segments = world.segments().size();
  const std::string victim = world.segments()[0];
  world.disk->flip_bit(victim, 8 * (kPage + 300));  // rows of the first record
  const auto bad = verify_store(*world.disk, "/cache", std::nullopt, nullptr);
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->quarantined, std::vector<std::string>{victim});
  EXPECT_EQ(bad->num_bad_blocks, 1u);
  EXPECT_EQ(world.disk->content(victim), "");
  world.open();
  size_t served = world.get(chain_of(1, 10)) + world.get(chain_of(2, 5)) + world.get(chain_of(3, 1));
  EXPECT_LT(served, 16u);
  world.store.reset();
  EXPECT_TRUE(verify_store(*world.disk, "/cache", std::nullopt, nullptr)->quarantined.empty());
  EXPECT_EQ(world.segments().size(), num_segments);  // the file in quarantine keeps its ending
}

// A medium that says no says nothing of what it holds: good segments of a bucket that cannot be reached are not taken away.
TEST(StoreTools, VerifyLeavesWhatItCannotRead) {
  ToolsWorld world;
  const auto before = world.segments();
  for (const bool header : {true, false}) {
    world.disk->set_fault([&](const io::MemoryDisk::Access& access) -> Result<> {
      if (access.op == io::MemoryDisk::Op::kRead && access.path == before[0] && (header || access.offset >= kPage)) return Error{Code::kIo, access.path + ": timed out"};
      return {};
    });
    const auto report = verify_store(*world.disk, "/cache", std::nullopt, nullptr);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->unreadable, std::vector<std::string>{before[0] + ": timed out"});
    EXPECT_TRUE(report->quarantined.empty());
    EXPECT_EQ(world.segments(), before);
  }
  world.disk->set_fault(nullptr);
  EXPECT_EQ(verify_store(*world.disk, "/cache", std::nullopt, nullptr)->num_segments, before.size()) << "and it is read the next time";
}

// A segment that is evicted while it is verified is no error.
TEST(StoreTools, VerifyTakesItThatASegmentGoes) {
  ToolsWorld world;
  const std::string victim = world.segments()[0];
  world.disk->flip_bit(victim, 8 * (kPage + 300));
  world.disk->set_fault([&](const io::MemoryDisk::Access& access) -> Result<> {
    if (access.op == io::MemoryDisk::Op::kRename && access.path == victim) return Error{Code::kNotFound, victim};
    return {};
  });
  const auto report = verify_store(*world.disk, "/cache", std::nullopt, nullptr);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->quarantined.empty());
  world.disk->set_fault(nullptr);
}

TEST(StoreTools, QuarantineGoesWithAPurgeAndBeforeGoodBlocks) {
  const auto quarantined = [](const StoreWorld& world) {
    const auto names = world.disk->list("/cache/quarantine");
    return names ? names->size() : 0;
  };
  const auto damage_all = [&](StoreWorld& world) {
    for (const std::string& path : world.segments()) world.disk->flip_bit(path, 8 * (kPage + 300));
    EXPECT_EQ(verify_store(*world.disk, "/cache", std::nullopt, nullptr)->quarantined.size(), 4u);
    EXPECT_EQ(quarantined(world), 4u);
  };
  {
    ToolsWorld world;
    damage_all(world);
    EXPECT_EQ(purge_store(*world.disk, "/cache", {.tenant = tenant_folder(world.options.folder.secret, "other")}, nullptr)->num_segments, 1u);
    EXPECT_EQ(quarantined(world), 3u);
    EXPECT_EQ(purge_store(*world.disk, "/cache", {.retention_class = "agent"}, nullptr)->num_segments, 1u);
    EXPECT_EQ(quarantined(world), 2u);
    EXPECT_EQ(purge_store(*world.disk, "/cache", {.before_s = world.time->wall - 3600}, nullptr)->num_segments, 0u);
    EXPECT_EQ(purge_store(*world.disk, "/cache", {}, nullptr)->num_segments, 2u);
    EXPECT_EQ(quarantined(world), 0u);
  }
  {
    ToolsWorld world;
    damage_all(world);
    world.options.budget_bytes = 60 * kPage;  // quarantine takes the larger part of it
    world.open();
    EXPECT_EQ(quarantined(world), 4u) << "there is room";
    EXPECT_EQ(world.put(chain_of(1, 10)), 10u);
    EXPECT_EQ(quarantined(world), 0u);
    EXPECT_EQ(world.store->stats().evicted_blocks, 0u);
    ASSERT_EQ(world.log.size(), 1u);
    EXPECT_NE(world.log[0].find("from quarantine"), std::string::npos);
    EXPECT_LE(world.disk->allocated_bytes(), world.options.budget_bytes);
  }
}

TEST(StoreTools, AVerifyThatWasCutShortGoesOn) {
  ToolsWorld world;
  ASSERT_TRUE(world.disk->put("/cache/verified", world.segments()[0] + " " + std::to_string(world.disk->content(world.segments()[0]).size()) + "\n"));
  const auto report = verify_store(*world.disk, "/cache", std::nullopt, nullptr);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->num_skipped, 1u);
  EXPECT_EQ(verify_store(*world.disk, "/cache", std::nullopt, nullptr)->num_skipped, 0u) << "a whole run forgets";
}

TEST(StoreTools, PurgeTakesWhatItIsTold) {
  {
    ToolsWorld world;
    const auto report = purge_store(*world.disk, "/cache", {.tenant = tenant_folder(world.options.folder.secret, "other")}, nullptr);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->num_segments, 1u);
    world.open();
    EXPECT_EQ(world.known(chain_of(3, 1)), 0u);
    EXPECT_EQ(world.known(chain_of(1, 10)), 10u);
  }
  {
    ToolsWorld world;
    world.open();  // while a server runs
    ASSERT_TRUE(purge_store(*world.disk, "/cache", {.retention_class = "agent"}, nullptr));
    EXPECT_EQ(world.get(chain_of(2, 5)), 0u);
    world.store->maintain();
    EXPECT_EQ(world.known(chain_of(2, 5)), 0u);
    EXPECT_EQ(world.get(chain_of(1, 10)), 10u);
    EXPECT_EQ(world.put(chain_of(2, 5), 1), 5u);
  }
  {
    ToolsWorld world;
    // Its time bucket began before the last minute, but it was written since.
    EXPECT_EQ(purge_store(*world.disk, "/cache", {.before_s = world.time->wall - 60}, nullptr)->num_segments, 0u);
    const auto segments = world.segments();
    world.time->advance(200'000);
    ASSERT_TRUE(world.disk->touch(segments[0], world.time->wall - 10));  // used
    EXPECT_EQ(purge_store(*world.disk, "/cache", {.before_s = world.time->wall - 3600}, nullptr)->num_segments, segments.size() - 1);
    EXPECT_EQ(world.segments(), std::vector<std::string>{segments[0]});
    EXPECT_EQ(purge_store(*world.disk, "/cache", {.before_s = world.time->wall + 1}, nullptr)->num_segments, 1u);
  }
}

}  // namespace
}  // namespace deepinfer::kv
