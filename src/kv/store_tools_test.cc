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
    const auto report = purge_store(*world.disk, "/cache", {.tenant = tenant_folder(world.options.folder.secret, "other")});
    ASSERT_TRUE(report);
    EXPECT_EQ(report->num_segments, 1u);
    world.open();
    EXPECT_EQ(world.known(chain_of(3, 1)), 0u);
    EXPECT_EQ(world.known(chain_of(1, 10)), 10u);
  }
  {
    ToolsWorld world;
    world.open();  // while a server runs
    ASSERT_TRUE(purge_store(*world.disk, "/cache", {.retention_class = "agent"}));
    EXPECT_EQ(world.get(chain_of(2, 5)), 0u);
    world.store->maintain();
    EXPECT_EQ(world.known(chain_of(2, 5)), 0u);
    EXPECT_EQ(world.get(chain_of(1, 10)), 10u);
    EXPECT_EQ(world.put(chain_of(2, 5), 1), 5u);
  }
  {
    ToolsWorld world;
    // Its time bucket began before the last minute, but it was written since.
    EXPECT_EQ(purge_store(*world.disk, "/cache", {.before_s = world.time->wall - 60})->num_segments, 0u);
    const auto segments = world.segments();
    world.time->advance(200'000);
    ASSERT_TRUE(world.disk->touch(segments[0], world.time->wall - 10));  // used
    EXPECT_EQ(purge_store(*world.disk, "/cache", {.before_s = world.time->wall - 3600})->num_segments, segments.size() - 1);
    EXPECT_EQ(world.segments(), std::vector<std::string>{segments[0]});
    EXPECT_EQ(purge_store(*world.disk, "/cache", {.before_s = world.time->wall + 1})->num_segments, 1u);
  }
}

}  // namespace
}  // namespace deepinfer::kv
