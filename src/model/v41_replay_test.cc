// DeepSeek-V4.1 after a prefix hit (bounded and exact replay) and at the end of a prompt (narrowing): against the official code's modules
// driven that way (tests/golden/v41-tiny/README.md), and against runs without a gap. The state of a Runner begins as no numbers, so
// a window row that is read below where the windows begin makes the logits no numbers.
#include <cstring>

#include "v41_tiny.h"

namespace deepinfer::model {
namespace {

// Bounded replay after a hit of H tokens: the blocks hold what ends below H, the windows are rebuilt from H - 8 on.
TEST(V41Replay, EncoderReplay) {
  const GoldenFile golden(kTiny + "/replay.safetensors");
  const auto tokens = tokens_of(golden, "tokens");
  const auto model = tiny_model();
  for (const int hit : {8, 16, 31, 32}) {
    Runner runner(*model);
    runner.run(tokens, 0, 64);
    const std::vector<std::byte> before(runner.block(0), runner.block(0) + model->kv_layout().block_bytes);
    runner.forget_state();
    const int start = std::max(0, hit - 8);
    const auto logits = runner.run(tokens, start, 64 - start, hit, {.window_start = start, .global_start = hit, .decoder_start = start});
    expect_within(logits, "replay", "enc." + std::to_string(hit) + ".logits");
    const V41Layout layout(model->config());
    for (const auto& [source, ratio] : {std::pair(0, 2), {1, 2}, {2, 1}})
      for (int32_t row = 0; row < hit / ratio; ++row) {
        const auto unchanged = [&](const uint8_t* now, size_t size) {
          return std::memcmp(now, before.data() + (now - reinterpret_cast<const uint8_t*>(runner.block(0))), size) == 0;
        };
        const auto main = layout.main_row(runner.block(0), source, row), key = layout.index_key(runner.block(0), source, row);
        EXPECT_TRUE(unchanged(main.codes, 32) && unchanged(main.scales, 4) && unchanged(key.codes, 16) && unchanged(key.scales, 1)) << hit << " " << source << " " << row;
      }
  }
}

// Narrowing: only the last rows of a prompt enter the decoder layers, whose windows begin with them.
TEST(V41Replay, DecoderNarrowing) {
  const GoldenFile golden(kTiny + "/replay.safetensors");
  const auto tokens = tokens_of(golden, "tokens");
  const auto model = tiny_model();
  for (const int prompt : {8, 9, 16, 33, 64}) {
    const int kept = std::max(0, prompt - 8);
    Runner runner(*model);
    const auto logits = runner.run(tokens, 0, prompt, kept, {.decoder_start = kept});
    expect_within(logits, "replay", "dec." + std::to_string(prompt) + ".logits");
    for (const int chunk : {1, 5, 13}) {  // the same in pieces, whatever falls on either side of the cut
      Runner pieces(*model);
      std::vector<float> parts;
      for (int start = 0; start < prompt; start += chunk) {
        const auto part = pieces.run(tokens, start, std::min(chunk, prompt - start), kept, {.decoder_start = kept});
        parts.insert(parts.end(), part.begin(), part.end());
      }
      EXPECT_EQ(max_difference(parts, logits), 0) << prompt << " in " << chunk;
    }
  }
}

TEST(V41Replay, ReplayAndNarrowingThenADecodeStep) {
  const GoldenFile golden(kTiny + "/replay.safetensors");
  const auto model = tiny_model();
  for (const int hit : {8, 16, 31, 32}) {
    auto tokens = tokens_of(golden, "tokens");
    Runner runner(*model);
    runner.run(tokens, 0, 64);
    runner.forget_state();
    const int start = std::max(0, hit - 8);
    const std::string name = "encdec." + std::to_string(hit);
    const auto logits = runner.run(tokens, start, 64 - start, 56, {.window_start = start, .global_start = hit, .decoder_start = 56});
    expect_within(logits, "replay", name + ".logits");
    tokens.push_back(static_cast<TokenId>(golden.integers(name + ".next")[0]));
    const auto next = runner.run(tokens, 64, 1, 64, {.window_start = start, .global_start = hit, .decoder_start = 56});
    EXPECT_LE(relative(next, golden.floats(name + ".next_logits")), 0.03) << name;
  }
}

std::vector<TokenId> tokens200() { return tokens_of(GoldenFile(kTiny + "/prefill.safetensors"), "tokens200"); }

std::span<const float> rows_from(const std::vector<float>& logits, int32_t first_row, int32_t row) {
  return std::span(logits).subspan(static_cast<size_t>(row - first_row) * 320);
}

TEST(V41Replay, FromTheBeginningIsExact) {
  const auto tokens = tokens200();
  const auto model = tiny_model();
  Recorder cold, replayed;
  Runner whole(*model), runner(*model);
  model->observe(&cold);
  const auto expected = whole.run(tokens, 0, 64);
  runner.run(tokens, 0, 64);
  runner.forget_state();
  model->observe(&replayed);
  const auto logits = runner.run(tokens, 0, 64, 8, {.global_start = 8});
  EXPECT_EQ(max_difference(logits, rows_from(expected, 0, 8)), 0);
  for (int32_t layer = 0; layer < 8; ++layer) {
    const std::string rows = Recorder::key("window_rows", layer);
    EXPECT_EQ(max_difference(replayed.floats_[rows], cold.floats_[rows]), 0) << layer;
  }
}

// So many rows that what follows has the bits of a run without a gap; a window's worth is not enough for that.
TEST(V41Replay, ExactReplayGivesTheBitsOfARunWithoutAGap) {
  const auto tokens = tokens200();
  const auto model = tiny_model();
  const KvLayout& layout = model->kv_layout();
  EXPECT_EQ(layout.exact_replay_tokens, 8 * 7);
  Runner whole(*model);
  const auto expected = whole.run(tokens, 0, 200);
  for (const int hit : {64, 128, 199}) {
    for (const int chunk : {3, 200}) {
      Runner runner(*model);
      runner.run(tokens, 0, 200);
      runner.forget_state();
      const int start = hit - layout.exact_replay_tokens;
      std::vector<float> logits;
      for (int at = start; at < 200; at += chunk) {
        const auto part = runner.run(tokens, at, std::min(chunk, 200 - at), hit, {.window_start = start, .global_start = hit, .decoder_start = start});
        logits.insert(logits.end(), part.begin(), part.end());
      }
      EXPECT_EQ(max_difference(logits, rows_from(expected, 0, hit)), 0) << hit << " in " << chunk;
    }
    Runner bounded(*model);
    bounded.run(tokens, 0, 200);
    const int start = hit - layout.replay_tokens;
    const auto logits = bounded.run(tokens, start, 200 - start, hit, {.window_start = start, .global_start = hit, .decoder_start = start});
    EXPECT_NE(max_difference(logits, rows_from(expected, 0, hit)), 0) << hit;
  }
}

TEST(V41Replay, ChunksGiveTheSameBits) {
  const auto tokens = tokens200();
  const auto model = tiny_model();
  const Cut cut{.window_start = 120, .global_start = 128, .decoder_start = 192};
  const auto answer = [&](int32_t chunk) {
    Runner runner(*model);
    runner.run(tokens, 0, 200);
    runner.forget_state();
    std::vector<float> logits;
    for (int32_t start = 120; start < 200; start += chunk) {
      const auto part = runner.run(tokens, start, std::min(chunk, 200 - start), 192, cut);
      logits.insert(logits.end(), part.begin(), part.end());
    }
    const std::byte* blocks = runner.block(1);
    return std::pair(logits, std::vector<std::byte>(blocks, blocks + model->kv_layout().block_bytes));
  };
  const auto expected = answer(80);
  for (const int32_t chunk : {1, 7, 8, 9, 64}) {
    const auto got = answer(chunk);
    EXPECT_EQ(max_difference(got.first, expected.first), 0) << chunk;
    EXPECT_EQ(got.second, expected.second) << chunk;
  }
}

// What a cold prompt leaves in the blocks does not depend on which rows enter the decoder, nor does the selection of the rows that do,
// in the layer where the others are dropped.
TEST(V41Replay, NarrowingChangesNeitherBlocksNorTheFirstSelection) {
  const auto tokens = tokens200();
  const auto model = tiny_model();
  Runner whole(*model), narrowed(*model);
  Recorder all, kept;
  model->observe(&all);
  whole.run(tokens, 0, 64, 63);
  model->observe(&kept);
  narrowed.run(tokens, 0, 64, 63, {.decoder_start = 56});
  EXPECT_EQ(std::memcmp(whole.block(0), narrowed.block(0), static_cast<size_t>(model->kv_layout().block_bytes)), 0);
  const auto &expected = all.integers_["index.4"], &got = kept.integers_["index.4"];
  ASSERT_EQ(got.size(), 8u * 4);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.end() - 8 * 4));
}

// The first decode step after a narrowed prompt sees a whole window in every layer, and nothing older.
TEST(V41Replay, TheFirstDecodeStepSeesAFullWindow) {
  const auto tokens = tokens200();
  const auto model = tiny_model();
  const V41Layout layout(model->config());
  const Cut cut{.decoder_start = 56};
  const auto decode = [&](int32_t layer, int32_t spoilt) {
    Runner runner(*model);
    runner.run(tokens, 0, 64, 63, cut);
    if (spoilt >= 0) std::fill_n(layout.window_row(runner.aligned_state(), layer, spoilt).codes, 64, uint8_t{0x30});
    return runner.run(tokens, 64, 1, 64, cut);
  };
  const auto expected = decode(0, -1);
  for (int32_t layer = 0; layer < 8; ++layer) {
    EXPECT_EQ(max_difference(decode(layer, 56), expected), 0) << layer;
    for (const int32_t seen : {57, 60, 63}) EXPECT_NE(max_difference(decode(layer, seen), expected), 0) << layer << " at " << seen;
  }
}

// The decoder layers' rings hold the window that a narrowed prompt ends with, and nothing else: what narrowing dropped left no row there.
TEST(V41Replay, DecoderWindowsHoldTheEndOfANarrowedPrompt) {
  const auto tokens = tokens200();
  const auto model = tiny_model();
  const V41Layout layout(model->config());
  for (const int32_t prompt : {5, 8, 9, 64}) {
    const int32_t first = std::max(0, prompt - 8);
    Runner runner(*model);
    runner.run(tokens, 0, prompt, prompt - 1, {.decoder_start = first});
    for (int32_t layer = 4; layer < 8; ++layer) {
      for (int32_t position = prompt - layout.ring_rows(); position < prompt; ++position) {
        if (position < 0) continue;
        const auto row = layout.window_row(runner.aligned_state(), layer, position);
        const bool written = std::any_of(row.codes, row.codes + 64, [](uint8_t code) { return code != 0xff; });
        EXPECT_EQ(written, position >= first) << layer << " at " << position << " of " << prompt;
      }
    }
  }
}

// Drafted rows taken back behind a hit, a narrowed prompt and a block's edge: windows, compressed rows, waiting tokens and n-grams are as if
// they had never been.
TEST(V41Replay, RowsCanBeTakenBackBehindAHit) {
  const auto tokens = tokens200();
  const auto model = tiny_model();
  const int64_t block_bytes = model->kv_layout().block_bytes;
  auto wrong = tokens;
  for (TokenId& token : wrong) token = (token + 11) % 300;
  for (const int32_t prompt : {126, 127, 128, 129}) {
    const Cut cut{.window_start = 56, .global_start = 64, .decoder_start = prompt - 8};
    const auto answer = [&](int32_t drafted) {
      Runner runner(*model);
      runner.run(tokens, 0, 64);
      runner.forget_state();
      runner.run(tokens, 56, prompt - 56, prompt - 1, cut);
      if (drafted > 0) {
        auto draft = tokens;
        std::copy(wrong.begin() + prompt, wrong.end(), draft.begin() + prompt);
        runner.run(draft, prompt, drafted, prompt, cut);
      }
      auto logits = runner.run(tokens, prompt, 1, prompt, cut);
      const auto rest = runner.run(tokens, prompt + 1, 12, prompt, cut);
      logits.insert(logits.end(), rest.begin(), rest.end());
      std::vector<std::byte> blocks(runner.block(0), runner.block(0) + block_bytes);
      blocks.insert(blocks.end(), runner.block(1), runner.block(1) + block_bytes);
      return std::pair(logits, blocks);
    };
    const auto expected = answer(0);
    for (int32_t drafted = 1; drafted <= model->kv_layout().rollback_rows; ++drafted) {
      const auto got = answer(drafted);
      EXPECT_EQ(max_difference(got.first, expected.first), 0) << prompt << " and " << drafted;
      EXPECT_EQ(got.second, expected.second) << prompt << " and " << drafted;
    }
  }
}

// N-grams of the first replayed rows reach back before the replay: to three tokens, which must be the right ones.
TEST(V41Replay, NgramsReachBackBeforeTheReplay) {
  const auto tokens = tokens200();
  const auto model = tiny_model();
  const auto streams = [&](int32_t changed) {
    Runner runner(*model);
    runner.run(tokens, 0, 64);
    auto other = tokens;
    if (changed >= 0) other[static_cast<size_t>(changed)] = (other[static_cast<size_t>(changed)] + 5) % 300;
    Recorder recorder;
    model->observe(&recorder);
    runner.run(other, 24, 40, 63, {.window_start = 24, .global_start = 32, .decoder_start = 56});
    model->observe(nullptr);
    return recorder.floats_["X_engram.1"];
  };
  const auto expected = streams(-1);
  const size_t row = 4 * 128;
  for (const int32_t back : {1, 2, 3}) {
    const auto got = streams(24 - back);
    const auto rows = static_cast<size_t>(4 - back);  // whose n-grams hold that token
    EXPECT_NE(max_difference(std::span(got).first(rows * row), std::span(expected).first(rows * row)), 0) << back;
    EXPECT_EQ(max_difference(std::span(got).subspan(rows * row), std::span(expected).subspan(rows * row)), 0) << back;
  }
  EXPECT_EQ(max_difference(streams(20), expected), 0);
}

}  // namespace
}  // namespace deepinfer::model
