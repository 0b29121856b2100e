#include "model/v41_expert_slots.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <list>
#include <unistd.h>

#include "base/rng.h"
#include "temp_folder.h"

namespace deepinfer::model {
namespace {

// Files that hold nothing but experts: their parts one after the other, or anywhere, in files of their own and with gaps. None of it begins at a page
// but the files themselves, whose last part ends where they do.
class ExpertFiles final : public Checkpoint {
 public:
  enum class Order { kTogether, kScattered };
  ExpertFiles(const V41Config& c, Order order, const std::string& path) : path_(path) {
    struct Tensor {
      std::string name;
      size_t size, file, begin;
    };
    std::vector<Tensor> all;
    const auto codes = static_cast<size_t>(c.hidden_size) * static_cast<size_t>(c.moe_intermediate_size) / 2;
    for (int32_t layer = 0; layer < c.num_hidden_layers; ++layer)
      for (int32_t e = 0; e < c.n_routed_experts; ++e)
        for (const char* matrix : {"w1", "w2", "w3"})
          for (const char* part : {"scale", "weight"})
            all.push_back({fmt::format("layers.{}.ffn.experts.{}.{}.{}", layer, e, matrix, part), *part == 's' ? codes / 16 : codes, 0, 0});
    Rng rng(11);
    if (order == Order::kScattered)
      for (size_t i = all.size() - 1; i > 0; --i) std::swap(all[i], all[rng.below(i + 1)]);
    std::vector<std::string> contents(3, std::string(1234, '\0'));
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].file = order == Order::kTogether ? 3 * i / all.size() : rng.below(3);
      std::string& content = contents[all[i].file];
      if (order == Order::kScattered) content.append(rng.below(3) * 5000, '\0');
      all[i].begin = content.size();
      for (size_t k = 0; k < all[i].size; ++k) content += static_cast<char>(rng.below(256));
    }
    for (size_t i = 0; i < contents.size(); ++i) {
      std::ofstream(file_path(i), std::ios::binary) << contents[i];
      files_.push_back(io::MappedFile::open(file_path(i)).value());
    }
    for (const Tensor& t : all) {
      names_.push_back(t.name);
      tensors_.push_back({names_.back(), DType::kI8, {static_cast<int64_t>(t.size)}, files_[t.file].bytes().subspan(t.begin, t.size)});
    }
    std::sort(tensors_.begin(), tensors_.end(), [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  }
  ~ExpertFiles() override {
    for (size_t i = 0; i < files_.size(); ++i) std::remove(file_path(i).c_str());
  }

  const std::string& path() const override { return path_; }
  std::span<const TensorView> tensors() const override { return tensors_; }
  const io::MappedFile* mapping_of(const TensorView& tensor) const override {
    for (const io::MappedFile& file : files_)
      if (tensor.data.data() >= file.bytes().data() && tensor.data.data() < file.bytes().data() + file.bytes().size()) return &file;
    return nullptr;
  }
  std::span<io::MappedFile> mappings() override { return files_; }
  std::string file_path(size_t i) const { return path_ + std::to_string(i); }

 private:
  std::string path_;
  std::vector<io::MappedFile> files_;
  std::deque<std::string> names_;
  std::vector<TensorView> tensors_;
};

// 3 layers of 8 experts of 10,200 bytes: all parts smaller than a page or not much larger.
V41Config few_experts() {
  V41Config c;
  c.num_hidden_layers = 3;
  c.n_routed_experts = 8;
  c.hidden_size = 64;
  c.moe_intermediate_size = 100;
  return c;
}

class V41ExpertSlotsTest : public testing::TestWithParam<ExpertFiles::Order> {
 protected:
  const V41Config config_ = few_experts();
  ExpertFiles files_{config_, GetParam(), temp_folder() + "expert_slots"};

  std::unique_ptr<V41ExpertSlots> slots_of(uint64_t bytes) const { return V41ExpertSlots::create(config_, files_, bytes).value(); }
  bool holds(const V41Expert& got, int32_t layer, int32_t e) const {
    bool same = true;
    const auto compare = [&](const char* matrix, const Fp4Matrix& m) {
      for (const bool codes : {true, false}) {
        const TensorView* tensor = files_.find(fmt::format("layers.{}.ffn.experts.{}.{}.{}", layer, e, matrix, codes ? "weight" : "scale"));
        const void* at = codes ? static_cast<const void*>(m.codes) : m.scales;
        same = same && static_cast<int64_t>(tensor->data.size()) == m.rows * m.cols / (codes ? 2 : 32) && std::memcmp(at, tensor->data.data(), tensor->data.size()) == 0;
      }
    };
    compare("w1", got.w1);
    compare("w3", got.w3);
    compare("w2", got.w2);
    return same;
  }
};

// Layer after layer, as steps ask, against a list in which the newest stands first.
TEST_P(V41ExpertSlotsTest, HoldWhatTheCheckpointHoldsAndReadWhatIsNotThere) {
  Rng rng(5);
  for (const uint64_t bytes : {100'000, 200'000, 300'000, 10'000'000}) {
    const auto slots = slots_of(bytes);
    const auto at_a_time = static_cast<size_t>(slots->experts_at_a_time());
    const size_t capacity = std::min<size_t>(24, bytes / static_cast<size_t>(slots->slot_bytes()));
    ASSERT_EQ(at_a_time, capacity / 2);
    std::list<int32_t> twin;
    int64_t wanted = 0, read = 0;
    for (int round = 0; round < 400; ++round) {
      const auto layer = static_cast<int32_t>(rng.below(3));
      std::vector<int32_t> chosen;
      for (int32_t e = 0; e < 8; ++e)
        if (rng.below(3) == 0) chosen.push_back(e);
      for (size_t first = 0; first < chosen.size(); first += at_a_time) {  // turns
        slots->want(layer, std::span(chosen).subspan(first));
        for (size_t i = first; i < std::min(chosen.size(), first + 2 * at_a_time); ++i) {
          const int32_t key = layer * 8 + chosen[i];
          wanted += 1;
          if (std::erase(twin, key) == 0) {
            read += 1;
            if (twin.size() == capacity) twin.pop_back();
          }
          twin.push_front(key);
        }
        for (size_t i = first; i < std::min(chosen.size(), first + at_a_time); ++i) {
          ASSERT_TRUE(holds(slots->await(layer, chosen[i]), layer, chosen[i])) << layer << " " << chosen[i];
          ASSERT_TRUE(slots->is_read(layer, chosen[i]));
        }
      }
    }
    EXPECT_EQ(slots->num_wanted(), wanted);
    EXPECT_EQ(slots->num_read(), read);
    EXPECT_LT(read, wanted);
    EXPECT_TRUE(slots->take_error());
  }
}

// Those of the turn at hand and of the next: more would take the place of what is about to be used.
TEST_P(V41ExpertSlotsTest, MoreThanFitAreReadInTurns) {
  const auto slots = slots_of(5 * static_cast<uint64_t>(slots_of(1 << 20)->slot_bytes()));
  ASSERT_EQ(slots->experts_at_a_time(), 2);
  const std::vector<int32_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  slots->want(1, all);
  EXPECT_EQ(slots->num_read(), 4);
  for (int32_t e = 0; e < 4; ++e) EXPECT_TRUE(holds(slots->await(1, e), 1, e));
  EXPECT_FALSE(slots->is_read(1, 4));
  slots->want(1, std::span(all).subspan(2));
  EXPECT_EQ(slots->num_read(), 6);
  for (int32_t e = 2; e < 6; ++e) EXPECT_TRUE(holds(slots->await(1, e), 1, e));
}

TEST_P(V41ExpertSlotsTest, WhatCouldNotBeReadIsReadAgain) {
  const auto slots = slots_of(1 << 20);
  const std::vector<int32_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  std::string content;
  {
    std::ifstream file(files_.file_path(1), std::ios::binary);
    content.assign(std::istreambuf_iterator<char>(file), {});
  }
  ASSERT_EQ(::truncate(files_.file_path(1).c_str(), 5000), 0);
  slots->want(1, all);
  for (int32_t e = 0; e < 8; ++e) slots->await(1, e);
  const Result<> error = slots->take_error();
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().code, Code::kCorruption);
  EXPECT_EQ(error.error().message, files_.file_path(1) + ": the file has become shorter since it was opened");
  std::fstream(files_.file_path(1), std::ios::in | std::ios::out | std::ios::binary) << content;
  slots->want(1, all);
  for (int32_t e = 0; e < 8; ++e) EXPECT_TRUE(holds(slots->await(1, e), 1, e));
  EXPECT_TRUE(slots->take_error());
  EXPECT_GT(slots->num_read(), 8);
}

TEST_P(V41ExpertSlotsTest, SaysWhatIsTooLittle) {
  const auto two = 2 * static_cast<uint64_t>(slots_of(1 << 20)->slot_bytes());
  const auto refused = V41ExpertSlots::create(config_, files_, two - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("too little: two of them need"), std::string::npos) << refused.error().message;
  EXPECT_EQ(slots_of(two)->experts_at_a_time(), 1);
}

INSTANTIATE_TEST_SUITE_P(Orders, V41ExpertSlotsTest, testing::Values(ExpertFiles::Order::kTogether, ExpertFiles::Order::kScattered),
                         [](const auto& info) { return info.param == ExpertFiles::Order::kTogether ? "Together" : "Scattered"; });

}  // namespace
}  // namespace deepinfer::model
