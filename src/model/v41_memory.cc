#include "model/v41_memory.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/units.h"

namespace deepinfer::model {
namespace {

constexpr int64_t kPage = static_cast<int64_t>(io::kPageBytes);

Error not_mapped(const TensorView& tensor) { return Error{Code::kInvalidArgument, fmt::format("tensor {} does not lie in a file that can be read on demand", tensor.name)}; }

int64_t page_of(const io::MappedFile& file, const std::byte* at) { return (at - file.bytes().data()) / kPage; }

}  // namespace

Result<std::unique_ptr<V41Memory>> V41Memory::create(const V41Config& config, const Checkpoint& checkpoint, const V41MemoryOptions& limits) {
  std::unique_ptr<V41Memory> memory(new V41Memory);
  uint64_t table_bytes = 0;
  for (const int64_t rows : config.engram_num_embeddings) table_bytes += static_cast<uint64_t>(rows * (config.engram_head_dim + config.engram_head_dim / 32));
  if (table_bytes > 0 && (limits.engram_bytes || table_bytes >= kLargeTableBytes)) DI_TRY(memory->add_tables(config, checkpoint, limits.engram_bytes));
  if (limits.expert_bytes) {
    DI_TRY(memory->experts_, V41ExpertSlots::create(config, checkpoint, *limits.expert_bytes));
  }
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
  const int64_t least = std::min(2 * pages_per_position_ * static_cast<int64_t>(tables_.size()), next_page);
  if (capacity < least)
    return Error{Code::kInvalidArgument, fmt::format("{} for the Engram tables is too little: {} is the least", format_size(*bytes), format_size(static_cast<uint64_t>(least * kPage)))};
  if (capacity > INT32_MAX) return {};  // more than 8 TiB
  pages_.emplace(static_cast<int32_t>(capacity));
  return {};
}

bool V41Memory::reads_on_demand(std::string_view tensor_name) const {
  const auto is_of = [&](std::string_view part) { return tensor_name.find(part) != std::string_view::npos; };
  return (reads_tables() && is_of(".engram.embed.")) || (experts_ != nullptr && is_of(".ffn.experts."));
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
    pages_read_ += 1;
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

V41MemoryCounts V41Memory::counts() const {
  V41MemoryCounts counts{.pages_read = pages_read_};
  if (experts_ == nullptr) return counts;
  counts.experts_wanted = experts_->num_wanted();
  counts.experts_read = experts_->num_read();
  return counts;
}

int64_t V41Memory::resident_table_bytes() const {
  int64_t bytes = 0;
  for (const Table& t : tables_) bytes += t.codes.file->resident_bytes_inside(t.codes.bytes) + t.scales.file->resident_bytes_inside(t.scales.bytes);
  return bytes;
}

}  // namespace deepinfer::model
