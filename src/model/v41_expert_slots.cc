#include "model/v41_expert_slots.h"

#include <fmt/format.h>
#include <utility>

#include "base/units.h"
#include "io/free_memory.h"

namespace deepinfer::model {

V41ExpertSlots::V41ExpertSlots(const V41Config& config, std::vector<Expert> experts, int32_t capacity, uint64_t slot_bytes)
    : config_(config), experts_(std::move(experts)), lru_(capacity), slot_bytes_(static_cast<int64_t>(slot_bytes)), memory_(capacity * slot_bytes_) {}

Result<std::unique_ptr<V41ExpertSlots>> V41ExpertSlots::create(const V41Config& c, const Checkpoint& checkpoint, uint64_t bytes) {
  std::vector<Expert> experts;
  std::vector<const io::MappedFile*> mappings;
  uint64_t slot_bytes = 0;
  for (int32_t layer = 0; layer < c.num_hidden_layers; ++layer)
    for (int32_t e = 0; e < c.n_routed_experts; ++e) {
      DI_TRY(const Expert expert, find(checkpoint, fmt::format("layers.{}.ffn.experts.{}.", layer, e), mappings));
      slot_bytes = std::max(slot_bytes, expert.slot_bytes());
      experts.push_back(expert);
    }
  const uint64_t capacity = std::min<uint64_t>(bytes / slot_bytes, experts.size());
  if (capacity < std::min<uint64_t>(2, experts.size()))
    return Error{Code::kInvalidArgument, fmt::format("{} for the experts is too little: two of them need {}", format_size(bytes), format_size(2 * slot_bytes))};
  if (const uint64_t free = io::free_memory_bytes(); free != 0 && capacity * slot_bytes > free)
    return Error{Code::kResourceExhausted, fmt::format("{} for the experts is too much: {} of memory is free", format_size(capacity * slot_bytes), format_size(free))};
  std::unique_ptr<V41ExpertSlots> slots(new V41ExpertSlots(c, std::move(experts), static_cast<int32_t>(capacity), slot_bytes));
  for (const io::MappedFile* mapping : mappings) {
    DI_TRY(io::DirectFile file, io::DirectFile::open(*mapping));
    slots->files_.push_back(std::move(file));
  }
  slots->mappings_ = std::move(mappings);
  slots->leave_mappings();
  slots->queue_ = std::make_unique<io::ReadQueue>(slots->lru_.capacity());
  return slots;
}

// Where an expert's parts lie. Six of its own where nothing lies next to anything; one run as checkpoints are written.
Result<V41ExpertSlots::Expert> V41ExpertSlots::find(const Checkpoint& checkpoint, const std::string& prefix, std::vector<const io::MappedFile*>& mappings) {
  struct Part {
    size_t number, file;
    uint64_t begin, end;
  };
  std::array<Part, kParts> parts;
  for (size_t i = 0; i < kParts; ++i) {
    const char* matrix[] = {"w1", "w3", "w2"};
    const TensorView* tensor = checkpoint.find(fmt::format("{}{}.{}", prefix, matrix[i / 2], i % 2 == 0 ? "weight" : "scale"));
    CHECK(tensor != nullptr);  // bound
    const io::MappedFile* mapping = checkpoint.mapping_of(*tensor);
    if (mapping == nullptr) return Error{Code::kInvalidArgument, fmt::format("tensor {} does not lie in a file that can be read on demand", tensor->name)};
    const auto known = std::find(mappings.begin(), mappings.end(), mapping);
    const auto begin = static_cast<uint64_t>(tensor->data.data() - mapping->bytes().data());
    parts[i] = {i, static_cast<size_t>(known - mappings.begin()), begin, begin + tensor->data.size()};
    if (known == mappings.end()) mappings.push_back(mapping);
  }
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return std::pair(a.file, a.begin) < std::pair(b.file, b.begin); });
  Expert expert;
  for (const Part& part : parts) {
    Run* run = expert.num_runs > 0 ? &expert.runs[expert.num_runs - 1] : nullptr;
    if (run == nullptr || run->file != part.file || io::pages_down(part.begin) > run->first_page() + run->page_bytes()) {
      const uint64_t in_slot = expert.slot_bytes();
      run = &expert.runs[expert.num_runs++];
      *run = {.file = part.file, .begin = part.begin, .in_slot = in_slot};
    }
    run->end = part.end;
    expert.parts[part.number] = run->in_slot + part.begin - run->first_page();
  }
  return expert;
}

// What the system's cache holds of experts goes: read ahead beside what was bound, or just written. Pages that they share with something else come back alone.
void V41ExpertSlots::leave_mappings() const {
  std::vector<std::vector<std::span<const std::byte>>> ranges(mappings_.size());
  for (const Expert& expert : experts_)
    for (size_t i = 0; i < expert.num_runs; ++i) ranges[expert.runs[i].file].push_back(bytes_of(expert.runs[i]));
  for (size_t i = 0; i < mappings_.size(); ++i)
    for (const std::span<const std::byte> range : joined(std::move(ranges[i]))) {
      mappings_[i]->expect_random(range);
      mappings_[i]->evict(range);
    }
}

void V41ExpertSlots::want(int32_t layer, std::span<const int32_t> chosen) {
  chosen = chosen.first(std::min(chosen.size(), static_cast<size_t>(std::min(2 * experts_at_a_time(), lru_.capacity()))));
  num_wanted_ += static_cast<int64_t>(chosen.size());
  for (const int32_t expert : chosen) {
    const int64_t key = key_of(layer, expert);
    const LruKeys::Touched touched = lru_.touch(key);
    if (touched.was_there && !queue_->has_failed(touched.slot)) continue;
    num_read_ += 1;
    read(key, touched.slot);
  }
}

void V41ExpertSlots::read(int64_t key, int32_t number) {
  const Expert& expert = experts_[static_cast<size_t>(key)];
  std::array<io::ReadQueue::Part, kParts> parts;
  for (size_t i = 0; i < expert.num_runs; ++i) {
    const Run& run = expert.runs[i];
    parts[i] = {&files_[run.file], run.first_page(), run.num_bytes(), std::span(slot(number) + run.in_slot, run.page_bytes())};
  }
  queue_->read(number, std::span(parts).first(expert.num_runs));
}

bool V41ExpertSlots::is_read(int32_t layer, int32_t expert) const {
  const int32_t number = lru_.slot_of(key_of(layer, expert));
  return number >= 0 && queue_->is_read(number);
}

V41Expert V41ExpertSlots::await(int32_t layer, int32_t e) const {
  const int64_t key = key_of(layer, e);
  const int32_t number = lru_.slot_of(key);
  CHECK(number >= 0);  // asked for
  queue_->await(number);
  const Expert& expert = experts_[static_cast<size_t>(key)];
  const auto matrix = [&](size_t part, int64_t rows, int64_t cols) {
    return Fp4Matrix{reinterpret_cast<const uint8_t*>(slot(number) + expert.parts[part]), reinterpret_cast<const e8m0*>(slot(number) + expert.parts[part + 1]), rows, cols};
  };
  const int64_t hidden = config_.hidden_size, inter = config_.moe_intermediate_size;
  return {.w1 = matrix(0, inter, hidden), .w3 = matrix(2, inter, hidden), .w2 = matrix(4, hidden, inter)};
}

int64_t V41ExpertSlots::resident_bytes() const {
  int64_t bytes = io::resident_bytes({memory_.data(), static_cast<size_t>(memory_.size())});
  for (const Expert& expert : experts_)
    for (size_t i = 0; i < expert.num_runs; ++i) {
      const Run& run = expert.runs[i];
      bytes += mapped(run).resident_bytes_inside(bytes_of(run));
    }
  return bytes;
}

}  // namespace deepinfer::model
