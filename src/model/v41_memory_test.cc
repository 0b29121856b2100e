// A model that does not fit into what it may use: the same bits, and never more resident than the bound.
#include "model/v41_memory.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/units.h"
#include "model/load_tensors.h"
#include "model/safetensors.h"
#include "model/v41_engram.h"
#include "model/v41_synth.h"
#include "temp_folder.h"
#include "v41_folder.h"

namespace deepinfer::model {
namespace {

// 8 experts of 1.3 MB in each of 4 layers, an Engram table of 4 MB.
V41Config wide_config() {
  V41Config c = v41_synth_shape("v4.1-tiny", {.layers = 4, .engram_vocab = 20'000}).value();
  c.hidden_size = 512;
  c.moe_intermediate_size = 1600;
  return c;
}

class V41MemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = temp_folder() + "v41_memory";
    std::filesystem::remove_all(folder_);
    ASSERT_TRUE(write_v41_synth(folder_, wide_config(), {.seed = 5, .shard_bytes = 10 << 20}));
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {  // pages that are not on the disk yet cannot be evicted
      const int fd = ::open(entry.path().c_str(), O_RDONLY);
      ::fsync(fd);
      ::close(fd);
    }
    for (int32_t i = 0; i < 200; ++i) tokens_.push_back((i * i + 7 * i) % 311);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<V41> open(const V41MemoryOptions& limits) const { return open_v41(folder_, limits); }
  std::vector<float> logits(const V41MemoryOptions& limits, int32_t step, int threads) const {
    const auto model = open(limits);
    Runner runner(*model, threads);
    std::vector<float> all;
    for (int32_t at = 0; at < 200; at += step) {
      const auto part = runner.run(tokens_, at, std::min(step, 200 - at));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  std::string folder_;
  std::vector<TokenId> tokens_;
};

TEST_F(V41MemoryTest, TheSameBitsWithAnyBound) {
  const auto expected = logits({}, 200, 1);
  EXPECT_EQ(logits({.engram_bytes = 300'000}, 200, 2), expected);
  EXPECT_EQ(logits({.expert_bytes = 3'000'000}, 200, 2), expected);
  EXPECT_EQ(logits({.engram_bytes = 400'000, .expert_bytes = 7'000'000}, 20, 1), expected);
  EXPECT_EQ(logits({.engram_bytes = 1 << 30, .expert_bytes = 1 << 30}, 67, 2), expected);
  EXPECT_EQ(logits({.load = true}, 67, 2), expected);
  EXPECT_EQ(logits({.engram_bytes = 400'000, .expert_bytes = 7'000'000, .load = true}, 20, 1), expected);
}

TEST_F(V41MemoryTest, ResidencyStaysWithinTheBound) {
  const V41MemoryOptions limits{.engram_bytes = 400'000, .expert_bytes = 6'000'000};
  const auto model = open(limits);
  const V41ExpertSlots& experts = *model->memory()->experts();
  if (experts.resident_bytes() > 0) GTEST_SKIP() << "this file system keeps pages that are given back (" << folder_ << ")";
  EXPECT_EQ(model->memory()->resident_table_bytes(), 0);
  Runner runner(*model, 2);
  int64_t most_experts = 0, most_rows = 0;
  for (int32_t at = 0; at < 200; at += at < 100 ? 50 : 1) {
    runner.run(tokens_, at, at < 100 ? 50 : 1);
    most_experts = std::max(most_experts, experts.resident_bytes());
    most_rows = std::max(most_rows, model->memory()->resident_table_bytes());
  }
  EXPECT_LE(most_experts, 6'000'000);
  EXPECT_LE(most_rows, 400'000);
  EXPECT_GT(most_experts, 3'000'000);  // and the bound is used
  EXPECT_GT(most_rows, 200'000);
  const V41MemoryCounts counts = model->memory()->counts();
  EXPECT_GT(counts.experts_read, 0);
  EXPECT_GE(counts.experts_wanted, counts.experts_read);
  EXPECT_GT(counts.pages_read, 100);
}

// A disk that fails costs the step, and nothing after it.
TEST_F(V41MemoryTest, AStepWhoseExpertsCannotBeReadFails) {
  const auto expected = logits({}, 200, 1);
  const auto model = open({.expert_bytes = 7'000'000});
  Runner runner(*model, 2);
  // Of a shard that ends with experts, the last half expert.
  std::string path;
  {
    const auto checkpoint = Safetensors::open(folder_).value();
    for (const io::MappedFile& file : checkpoint->mappings()) {
      const auto& tensors = checkpoint->tensors();
      const auto last = std::max_element(tensors.begin(), tensors.end(), [&](const TensorView& a, const TensorView& b) {
        const auto end_of = [&](const TensorView& t) { return checkpoint->mapping_of(t) == &file ? t.data.data() + t.data.size() : nullptr; };
        return end_of(a) < end_of(b);
      });
      if (last->name.find(".ffn.experts.") != std::string_view::npos && last->name.find("layers.") == 0 && last->data.size() > 200'000) path = file.path();
    }
  }
  ASSERT_FALSE(path.empty());
  const std::string content = read_file(path);
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(content.size() - 200'000)), 0);
  const auto failed = runner.try_run(tokens_, 0, 200);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kCorruption);
  EXPECT_EQ(failed.error().message, path + ": the file has become shorter since it was opened");
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);  // the same file: the model has it open
    file << content;
  }
  runner.forget_state();
  EXPECT_EQ(runner.run(tokens_, 0, 200), expected);
}

// What was used last is there the next time.
TEST_F(V41MemoryTest, KeepsWhatFits) {
  const auto model = open({.engram_bytes = 64 << 20, .expert_bytes = 200 << 20});
  Runner first(*model);
  first.run(tokens_, 0, 200);
  const V41MemoryCounts before = model->memory()->counts();
  Runner second(*model);
  second.run(tokens_, 0, 200);
  const V41MemoryCounts after = model->memory()->counts();
  EXPECT_EQ(after.experts_read, before.experts_read);
  EXPECT_EQ(after.pages_read, before.pages_read);
  EXPECT_EQ(after.experts_wanted, 2 * before.experts_wanted);
}

TEST_F(V41MemoryTest, LoadsAllButWhatIsReadOnDemand) {
  const auto workers = Workers::create(2, false);
  const auto checkpoint = Safetensors::open(folder_).value();
  uint64_t others = 0, experts = 0;
  for (const TensorView& tensor : checkpoint->tensors()) (tensor.name.find(".ffn.experts.") == std::string::npos ? others : experts) += tensor.data.size();
  ASSERT_GT(experts, 0U);
  const auto memory = V41Memory::create(wide_config(), *checkpoint, {.expert_bytes = 7'000'000}).value();
  ASSERT_TRUE(load_tensors(*checkpoint, [&](std::string_view name) { return !memory->reads_on_demand(name); }, *workers));
  const auto loaded = [&] {
    uint64_t bytes = 0;
    for (const io::MappedFile& file : checkpoint->mappings()) bytes += file.loaded_bytes();
    return bytes;
  };
  EXPECT_LE(loaded(), others);
  EXPECT_GT(loaded(), others * 9 / 10);
  EXPECT_LT(static_cast<uint64_t>(memory->experts()->resident_bytes()), experts);

  const auto all = Safetensors::open(folder_).value();
  ASSERT_TRUE(load_tensors(*all, [](std::string_view) { return true; }, *workers));
  uint64_t bytes = 0;
  for (const io::MappedFile& file : all->mappings()) {
    EXPECT_GE(file.loaded_bytes() + (64 << 10), file.bytes().size());  // all but the header
    bytes += file.loaded_bytes();
  }
  EXPECT_GT(bytes, experts);
}

TEST_F(V41MemoryTest, SaysWhatIsTooLittle) {
  const auto checkpoint = Safetensors::open(folder_).value();
  const V41Config c = wide_config();
  const auto experts = V41Memory::create(c, *checkpoint, {.expert_bytes = 1'000'000});
  ASSERT_FALSE(experts);
  EXPECT_EQ(experts.error().code, Code::kInvalidArgument);
  EXPECT_NE(experts.error().message.find("too little: two of them need"), std::string::npos) << experts.error().message;
  EXPECT_FALSE(V41Memory::create(c, *checkpoint, {.engram_bytes = 4096}));
  EXPECT_EQ(V41Memory::create(c, *checkpoint, {}).value(), nullptr);  // small tables and no bound: nothing to do
}

// Whether the tables are larger than what a step may touch, or smaller.
TEST_F(V41MemoryTest, TheLeastThatIsNamedIsTheLeast) {
  for (const int64_t engram_vocab : {97, 20'000}) {
    V41Config c = wide_config();
    c.engram_vocab_size = engram_vocab;
    c.engram_num_embeddings = EngramHash::table_rows(c);
    const std::string folder = folder_ + "_least";
    std::filesystem::remove_all(folder);
    ASSERT_TRUE(write_v41_synth(folder, c, {.sparse = true}));
    const auto checkpoint = Safetensors::open(folder).value();
    uint64_t least = 0;
    while (!V41Memory::create(c, *checkpoint, {.engram_bytes = least})) least += 4096;
    const auto refused = V41Memory::create(c, *checkpoint, {.engram_bytes = least - 1});
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find(": " + format_size(least) + " is the least"), std::string::npos) << refused.error().message << " " << least;
    std::filesystem::remove_all(folder);
  }
}

}  // namespace
}  // namespace deepinfer::model
