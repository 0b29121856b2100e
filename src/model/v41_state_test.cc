#include "model/v41_state.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <string>

#include "v41_tiny.h"

namespace deepinfer::model {
namespace {

V41Config released() {
  V41Config c;
  c.num_hidden_layers = 40;
  c.head_dim = 512;
  c.index_head_dim = 128;
  c.sliding_window = 128;
  c.compress_ratios.assign(43, 0);
  for (int l = 2; l < 40; ++l) c.compress_ratios[static_cast<size_t>(l)] = l < 20 ? 2 : 1;
  c.kv_source_layer_ids = {2, 8, 14, 20};
  c.num_draft_stages = 3;
  c.dspark_block_size = 5;
  return c;
}

// model.md 3.2 and 3.3: 890 bytes a token, 113,920 a block; 528 a window row.
TEST(V41Layout, SizesOfTheReleasedModel) {
  const V41Layout layout(released());
  EXPECT_EQ(layout.block_bytes(), 113920);
  EXPECT_EQ(layout.ring_rows(), 133);
  const int64_t windows = (43ll * 133 * 528 + 63) / 64 * 64, pending = 3ll * 7 * 2 * 512 * 4;
  EXPECT_EQ(layout.state_bytes(), windows + pending);
}

// Every byte of a block belongs to one row, and every byte of a state to at most one.
TEST(V41Layout, NothingOverlaps) {
  const V41Config config = released();
  const V41Layout layout(config);
  std::vector<std::byte> block(static_cast<size_t>(layout.block_bytes())), state(static_cast<size_t>(layout.state_bytes()));
  std::vector<int> uses(block.size());
  const auto use = [](std::vector<int>& count, std::vector<std::byte>& base, const uint8_t* p, int64_t n) {
    const int64_t offset = p - reinterpret_cast<uint8_t*>(base.data());
    ASSERT_GE(offset, 0);
    ASSERT_LE(offset + n, static_cast<int64_t>(base.size()));
    for (int64_t i = 0; i < n; ++i) count[static_cast<size_t>(offset + i)] += 1;
  };
  for (int32_t source = 0; source < 4; ++source)
    for (int32_t row = 0; row < (source == 3 ? 128 : 64); ++row) {
      EXPECT_EQ(layout.block_of(source, row), 0);
      use(uses, block, layout.main_row(block.data(), source, row).codes, 256);
      use(uses, block, layout.main_row(block.data(), source, row).scales, 32);
      use(uses, block, layout.index_key(block.data(), source, row).codes, 64);
      use(uses, block, layout.index_key(block.data(), source, row).scales, 4);
    }
  EXPECT_EQ(std::set<int>(uses.begin(), uses.end()), std::set<int>{1});
  EXPECT_EQ(layout.block_of(0, 64), 1);
  uses.assign(state.size(), 0);
  for (int32_t layer = 0; layer < 43; ++layer)
    for (int32_t p = 1000; p < 1133; ++p) {
      use(uses, state, layout.window_row(state.data(), layer, p).codes, 512);
      use(uses, state, layout.window_row(state.data(), layer, p).scales, 16);
    }
  for (int32_t source = 0; source < 3; ++source)
    for (int32_t p = 1000; p < 1007; ++p) use(uses, state, reinterpret_cast<uint8_t*>(layout.pending(state.data(), source, p)), 4096);
  EXPECT_EQ(*std::max_element(uses.begin(), uses.end()), 1);
}

// Rows in a shared store come from machines of other instruction sets too.
TEST(V41Layout, TheFormatNamesWhatDecidesTheBitsOfRows) {
  std::set<std::string> formats;
  for (const Isa isa : available_isas()) {
    const std::string format = tiny_model(10, isa)->kv_layout().format;
    EXPECT_TRUE(formats.insert(format).second) << format;
  }
}

}  // namespace
}  // namespace deepinfer::model
