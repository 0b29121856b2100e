#include "model/v41_memory.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/units.h"

namespace deepinfer::model {
namespace {

constexpr int64_t kPage = static_cast<int64_t>(io::kPageBytes);

Error not_mapped(const TensorView& tensor) { return Error{Code::kInvalidArgument, fmt::format("tensor {} does not lie in a file that can be read on demand", tensor.name)}; }

// The pages that hold nothing else.
int64_t resident_inside(const io::MappedFile& file, std::span<const std::byte> range) {
  const int64_t begin = range.data() - file.bytes().data(), end = begin + static_cast<int64_t>(range.size());
  const int64_t first = (begin + kPage - 1) / kPage * kPage, last = end / kPage * kPage;
  return first < last ? file.resident_bytes(file.bytes().subspan(static_cast<size_t>(first), static_cast<size_t>(last - first))) : 0;
}

int64_t page_of(const io::MappedFile& file, const std::byte* at) { return (at - file.bytes().data()) / kPage; }

}  // namespace

Result<std::unique_ptr<V41Memory>> V41Memory::create(const V41Config& config, const Checkpoint& checkpoint, const V41MemoryOptions& limits) {
  std::unique_ptr<V41Memory> memory(new V41Memory);
  uint64_t table_bytes = 0;
  for (const int64_t rows : config.engram_num_embeddings) table_bytes += static_cast<uint64_t>(rows * (config.engram_head_dim + config.engram_head_dim / 32));
  if (table_bytes > 0 && (limits.engram_bytes || table_bytes >= kLargeTableBytes)) DI_TRY(memory->add_tables(config, checkpoint, limits.engram_bytes));
  if (limits.expert_bytes) DI_TRY(memory->add_experts(config, checkpoint, *limits.expert_bytes));
  if (memory->tables_.empty() && !memory->experts_) memory.reset();
  return memory;
}

Result<> V41Memory::add_tables(const V41Config& c, const Checkpoint& checkpoint, std::optional<uint64_t> bytes) {
  int64_t next_page = 0;
  for (const int32_t layer : c.engram_layer_ids) {
    Table table{.row_codes = c.engram_head_dim, .row_scales = c.engram_head_dim / 32};
    for (auto [range, suffix] : {std::pair(&table.codes, "weight"), {&table.scales, "scale"}}) {
      const TensorView* tensor = checkpoint.find(fmt::format("layers.{}.engram.embed.{}", layer, suffix));
      CHECK(tensor != nullptr);  // bound
      range->file = checkpoint.mapping_of(*tensor);
      if (range->file == nullptr) return not_mapped(*tensor);
      range->bytes = tensor->data;
      range->file->expect_random(range->bytes);
      if (bytes) range->file->evict(range->bytes);  // what is counted starts from nothing
      first_page_.push_back(next_page);
      next_page += static_cast<int64_t>(range->bytes.size()) / kPage + 2;
    }
    tables_.push_back(table);
  }
  // A row may lie across page borders, however short it is.
  const int64_t columns = int64_t{c.engram_max_ngram_size - 1} * c.engram_n_heads;
  pages_per_position_ = columns * ((c.engram_head_dim - 1) / kPage + 2 + (c.engram_head_dim / 32 - 1) / kPage + 2);
  if (!bytes) return {};
  const int64_t capacity = std::min(static_cast<int64_t>(std::min<uint64_t>(*bytes, INT64_MAX)) / kPage, next_page);
  const int64_t least = 2 * pages_per_position_ * static_cast<int64_t>(tables_.size());
  if (capacity < std::min(least, next_page))
    return Error{Code::kInvalidArgument, fmt::format("{} for the Engram tables is too little: {} is the least", format_size(*bytes), format_size(static_cast<uint64_t>(least * kPage)))};
  if (capacity > INT32_MAX) return {};  // more than 8 TiB
  pages_.emplace(static_cast<int32_t>(capacity));
  return {};
}

Result<> V41Memory::add_experts(const V41Config& c, const Checkpoint& checkpoint, uint64_t bytes) {
  experts_per_layer_ = c.n_routed_experts;
  uint64_t largest = 0;
  for (int32_t layer = 0; layer < c.num_hidden_layers; ++layer)
    for (int32_t e = 0; e < c.n_routed_experts; ++e) {
      Expert& expert = expert_ranges_.emplace_back();
      uint64_t size = 0;
      for (size_t part = 0; part < kExpertParts; ++part) {
        const char* matrix[] = {"w1", "w3", "w2"};
        const TensorView* tensor = checkpoint.find(fmt::format("layers.{}.ffn.experts.{}.{}.{}", layer, e, matrix[part / 2], part % 2 == 0 ? "weight" : "scale"));
        CHECK(tensor != nullptr);  // bound
        expert[part] = {checkpoint.mapping_of(*tensor), tensor->data};
        if (expert[part].file == nullptr) return not_mapped(*tensor);
        size += (tensor->data.size() + 2 * io::kPageBytes - 2) / io::kPageBytes * io::kPageBytes;  // the pages that it may touch
      }
      largest = std::max(largest, size);
    }
  const uint64_t capacity = std::min<uint64_t>(bytes / largest, expert_ranges_.size());
  if (capacity < std::min<uint64_t>(2, expert_ranges_.size()))
    return Error{Code::kInvalidArgument, fmt::format("{} for the experts is too little: two of them need {}", format_size(bytes), format_size(2 * largest))};
  experts_.emplace(static_cast<int32_t>(capacity));
  // One piece of advice for neighbours: each that differs from what lies beside it would cost the kernel a mapping of its own.
  std::vector<Range> all;
  for (const Expert& expert : expert_ranges_) all.insert(all.end(), expert.begin(), expert.end());
  std::sort(all.begin(), all.end(), [](const Range& a, const Range& b) { return a.bytes.data() < b.bytes.data(); });
  for (size_t i = 0; i < all.size();) {
    size_t next = i + 1;
    while (next < all.size() && all[next].file == all[i].file && all[next].bytes.data() == all[next - 1].bytes.data() + all[next - 1].bytes.size()) ++next;
    const std::span<const std::byte> joined(all[i].bytes.data(), all[next - 1].bytes.data() + all[next - 1].bytes.size());
    all[i].file->expect_random(joined);
    all[i].file->evict(joined);
    i = next;
  }
  return {};
}

bool V41Memory::reads_on_demand(std::string_view tensor_name) const {
  const auto is_of = [&](std::string_view part) { return tensor_name.find(part) != std::string_view::npos; };
  return (reads_tables() && is_of(".engram.embed.")) || (bounds_experts() && is_of(".ffn.experts."));
}

int64_t V41Memory::positions_at_a_time(int64_t num_rows) const {
  // Half of the bound for the piece at hand, half for what the other tables have asked for ahead.
  if (!pages_) return num_rows;
  return std::clamp<int64_t>(pages_->capacity() / (2 * pages_per_position_ * static_cast<int64_t>(tables_.size())), 1, num_rows);
}

void V41Memory::want_rows(int32_t table, std::span<const int64_t> ids) {
  const Table& t = tables_[static_cast<size_t>(table)];
  const int64_t* first = &first_page_[static_cast<size_t>(2 * table)];
  for (const int64_t id : ids) {
    want_pages(t.codes, first[0], id * t.row_codes, (id + 1) * t.row_codes);
    want_pages(t.scales, first[1], id * t.row_scales, (id + 1) * t.row_scales);
  }
}

// The pages of bytes [begin, end) of a range, whose own first page has the key first_key.
void V41Memory::want_pages(const Range& range, int64_t first_key, int64_t begin, int64_t end) {
  const io::MappedFile& file = *range.file;
  const std::byte* data = range.bytes.data();
  const int64_t origin = page_of(file, data), last = page_of(file, data + end - 1);
  const auto page_bytes = [&](int64_t page) {  // what of the page belongs to the range
    const auto* at = file.bytes().data() + page * kPage;
    return std::span(std::max(at, data), std::min(at + kPage, data + range.bytes.size()));
  };
  for (int64_t page = page_of(file, data + begin); page <= last; ++page) {
    if (!pages_) {
      file.read_ahead(page_bytes(page));
      continue;
    }
    const LruKeys::Touched touched = pages_->touch(first_key + page - origin);
    if (touched.evicted) evict_page(*touched.evicted);
    if (touched.was_there) continue;
    counts_.pages_read += 1;
    file.read_ahead(page_bytes(page));
  }
}

// Of whichever table: keys count on from one range to the next.
void V41Memory::evict_page(int64_t key) const {
  const size_t which = static_cast<size_t>(std::upper_bound(first_page_.begin(), first_page_.end(), key) - first_page_.begin()) - 1;
  const Range& range = which % 2 == 0 ? tables_[which / 2].codes : tables_[which / 2].scales;
  const io::MappedFile& file = *range.file;
  const auto* at = file.bytes().data() + (page_of(file, range.bytes.data()) + key - first_page_[which]) * kPage;
  file.evict({at, static_cast<size_t>(std::min<int64_t>(kPage, file.bytes().data() + file.bytes().size() - at))});
}

void V41Memory::want_experts(int32_t layer, std::span<const int32_t> chosen) {
  chosen = chosen.first(std::min(chosen.size(), static_cast<size_t>(std::min(2 * experts_at_a_time(), experts_->capacity()))));
  counts_.experts_wanted += static_cast<int64_t>(chosen.size());
  for (const int32_t number : chosen) {
    const int64_t key = int64_t{layer} * experts_per_layer_ + number;
    const LruKeys::Touched touched = experts_->touch(key);
    if (touched.evicted)
      for (const Range& part : expert_ranges_[static_cast<size_t>(*touched.evicted)]) part.file->evict(part.bytes);
    if (touched.was_there) continue;
    counts_.experts_read += 1;
    for (const Range& part : expert_ranges_[static_cast<size_t>(key)]) part.file->read_ahead(part.bytes);
  }
}

int64_t V41Memory::resident_table_bytes() const {
  int64_t bytes = 0;
  for (const Table& t : tables_) bytes += resident_inside(*t.codes.file, t.codes.bytes) + resident_inside(*t.scales.file, t.scales.bytes);
  return bytes;
}

int64_t V41Memory::resident_expert_bytes() const {
  int64_t bytes = 0;
  for (const Expert& expert : expert_ranges_)
    for (const Range& part : expert) bytes += resident_inside(*part.file, part.bytes);
  return bytes;
}

}  // namespace deepinfer::model
