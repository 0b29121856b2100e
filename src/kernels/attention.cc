#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/check.h"
#include "kernels/cpu/attention_kernel.h"

namespace deepinfer {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

cpu::AttendPartition attend_partition(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return cpu::attend_partition_portable;
    case Isa::kAvx2:
    case Isa::kAvxVnni:
    case Isa::kAvx512f: return cpu::attend_partition_avx2;
    case Isa::kAvx512: return cpu::attend_partition_avx512;
    case Isa::kAmx: return cpu::attend_partition_amx;
  }
  return nullptr;
}

// Rows whose scores the version multiplies in one go.
int32_t tile_rows(Isa isa) { return isa == Isa::kAmx ? 16 : isa == Isa::kAvx512 ? 12 : 6; }

int32_t ceil_div(int64_t a, int64_t b) { return static_cast<int32_t>((a + b - 1) / b); }

// What a tile has so far, row by row, or what one partition gives it.
struct TileResult {
  float* values;  // [rows, dim], not divided by the sums
  float* max;     // [rows]
  float* sum;     // [rows]
};
TileResult tile_result(float* memory, int32_t tile_rows, int32_t dim) {
  return {memory, memory + int64_t{tile_rows} * dim, memory + int64_t{tile_rows} * (dim + 1)};
}

// Takes a later partition of the same row in. The one place where partitions meet: its order of operations is what makes a row's
// bits independent of who computed the partitions.
void merge_row(TileResult into, TileResult part, int32_t row, int32_t dim) {
  if (part.max[row] == kNone) return;  // the row sees none of these keys
  float* values = into.values + int64_t{row} * dim;
  const float* part_values = part.values + int64_t{row} * dim;
  if (into.max[row] == kNone) {
    std::copy_n(part_values, dim, values);
    into.max[row] = part.max[row];
    into.sum[row] = part.sum[row];
    return;
  }
  const float max = std::max(into.max[row], part.max[row]);
  const float keep = std::exp2(into.max[row] - max), take = std::exp2(part.max[row] - max);
  for (int32_t i = 0; i < dim; ++i) values[i] = values[i] * keep + part_values[i] * take;
  into.sum[row] = into.sum[row] * keep + part.sum[row] * take;
  into.max[row] = max;
}

}  // namespace

QueryFormat attention_query_format(KvFormat format, Isa isa) {
  return format == KvFormat::kBf16 && (isa == Isa::kAvx512 || isa == Isa::kAmx) ? QueryFormat::kBf16 : QueryFormat::kF32;
}

int64_t AttentionPlan::slot_floats() const {
  const int64_t n = int64_t{tile_rows_} * (shape_.kv.padded_dim() + 2);
  return (n + 15) / 16 * 16;
}

AttentionPlan::AttentionPlan(const AttentionShape& shape, Isa isa, const Limits& limits)
    : shape_(shape), isa_(isa), limits_(limits), tile_rows_(tile_rows(isa)) {
  CHECK(shape.num_heads % shape.kv.num_kv_heads == 0);
  const int64_t partitions = ceil_div(limits.max_context, kAttentionPartition);
  // Every span may end in a tile that is not full. A tile has at most `partitions` items beyond its first, if it is split at all,
  // and fewer than 4 * threads tiles are (build()).
  const int64_t tiles = int64_t{shape.kv.num_kv_heads} * (limits.max_spans + ceil_div(int64_t{limits.max_rows} * shape.group(), tile_rows_));
  max_splits_ = 4 * limits.num_threads;
  // Beyond 32 MiB of partial results tiles are left whole: so long a context keeps every thread busy with what is split.
  max_slots_ = static_cast<int32_t>(std::min<int64_t>(max_splits_ * partitions, (32 << 20) / (4 * slot_floats())));
  spans_.reserve(static_cast<size_t>(limits.max_spans));
  items_.resize(static_cast<size_t>(tiles + max_slots_));
  splits_ = std::make_unique<Split[]>(static_cast<size_t>(max_splits_));
  slots_.resize(static_cast<size_t>(max_slots_ * slot_floats()));
  scratch_floats_ = 2 * int64_t{cpu::kMaxTileRows} * cpu::kScoreStride + 2 * slot_floats();
  scratch_.resize(static_cast<size_t>(scratch_floats_ * limits.num_threads));
  uses_.resize(static_cast<size_t>(8 * limits.num_threads));
}

// One item, or several with a range of partitions each if the tile has so many keys that others would wait for it.
void AttentionPlan::add_tile(Item tile, int64_t num_keys, int64_t max_keys_an_item) {
  const int32_t partitions = ceil_div(num_keys, kAttentionPartition);
  const int32_t a_piece = std::max(1, static_cast<int32_t>(max_keys_an_item / kAttentionPartition));
  const bool split = partitions > a_piece && num_splits_ < max_splits_ && num_slots_ + partitions <= max_slots_;
  if (!split) {
    tile.first_partition = 0;
    tile.end_partition = partitions;
    tile.cost = num_keys * tile.num_queries;
    items_[num_items_++] = tile;
    return;
  }
  Split& s = splits_[num_splits_];
  s.first_slot = num_slots_;
  s.num_partitions = partitions;
  s.num_items = ceil_div(partitions, a_piece);
  s.remaining.store(s.num_items, std::memory_order_relaxed);
  for (int32_t first = 0; first < partitions; first += a_piece) {
    tile.first_partition = first;
    tile.end_partition = std::min(first + a_piece, partitions);
    tile.split = num_splits_;
    tile.cost = (std::min<int64_t>(num_keys, int64_t{tile.end_partition} * kAttentionPartition) - int64_t{first} * kAttentionPartition) * tile.num_queries;
    items_[num_items_++] = tile;
  }
  num_slots_ += partitions;
  ++num_splits_;
}

void AttentionPlan::build(std::span<const AttentionSpan> spans) {
  CHECK(static_cast<int32_t>(spans.size()) <= limits_.max_spans);
  spans_.assign(spans.begin(), spans.end());
  num_items_ = 0;
  num_splits_ = num_slots_ = 0;
  next_item_.store(0, std::memory_order_relaxed);
  std::fill(uses_.begin(), uses_.end(), 0);
  const int32_t group = shape_.group();
  const auto each_tile = [&](auto f) {
    for (size_t s = 0; s < spans.size(); ++s) {
      const int32_t queries = spans[s].num_rows * group;
      for (int32_t first = 0; first < queries; first += tile_rows_) {
        const int32_t n = std::min(tile_rows_, queries - first);
        f(Item{.span = static_cast<int32_t>(s), .kv_head = 0, .first_query = first, .num_queries = n, .first_partition = 0, .end_partition = 0},
          int64_t{spans[s].start} + (first + n - 1) / group + 1);
      }
    }
  };
  int64_t total_keys = 0;
  each_tile([&](const Item&, int64_t num_keys) { total_keys += num_keys * shape_.kv.num_kv_heads; });
  // Four items a thread even out what differs; fewer than 4 * threads tiles can be longer than that.
  const int64_t max_keys_an_item = total_keys / (4 * limits_.num_threads);
  each_tile([&](Item tile, int64_t num_keys) {
    for (tile.kv_head = 0; tile.kv_head < shape_.kv.num_kv_heads; ++tile.kv_head) add_tile(tile, num_keys, max_keys_an_item);
  });
  std::sort(items_.begin(), items_.begin() + static_cast<ptrdiff_t>(num_items_), [](const Item& a, const Item& b) {
    if (a.cost != b.cost) return a.cost > b.cost;
    if (a.span != b.span) return a.span < b.span;
    if (a.first_query != b.first_query) return a.first_query < b.first_query;
    if (a.kv_head != b.kv_head) return a.kv_head < b.kv_head;
    return a.first_partition < b.first_partition;
  });
}

// One thread's part of attention().
class AttentionWorker {
 public:
  AttentionWorker(const AttentionParams& p, AttentionPlan& plan, float* scratch)
      : p_(p), plan_(plan), kv_(plan.shape_.kv), group_(plan.shape_.group()), dim_(kv_.padded_dim()),
        query_bytes_(int64_t{dim_} * (attention_query_format(kv_.format, plan.isa_) == QueryFormat::kBf16 ? 2 : 4)),
        attend_(attend_partition(plan.isa_)), scores_(scratch), weights_(scores_ + cpu::kMaxTileRows * cpu::kScoreStride),
        total_(tile_result(weights_ + cpu::kMaxTileRows * cpu::kScoreStride, plan.tile_rows_, dim_)),
        part_(tile_result(total_.values + plan.slot_floats(), plan.tile_rows_, dim_)) {}

  void run(const AttentionPlan::Item& item) {
    if (item.split < 0) {
      if (!partition(item, item.first_partition, total_)) clear(total_, item.num_queries);
      for (int32_t i = item.first_partition + 1; i < item.end_partition; ++i) {
        if (partition(item, i, part_)) merge(part_, item.num_queries);
      }
      write(item);
      return;
    }
    AttentionPlan::Split& split = plan_.splits_[item.split];
    for (int32_t i = item.first_partition; i < item.end_partition; ++i) {
      const TileResult slot = slot_of(split, i);
      if (!partition(item, i, slot)) clear(slot, item.num_queries);
    }
    // The last to finish merges all; what the others wrote is visible to it.
    if (split.remaining.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    split.remaining.store(split.num_items, std::memory_order_relaxed);
    clear(total_, item.num_queries);
    for (int32_t i = 0; i < split.num_partitions; ++i) merge(slot_of(split, i), item.num_queries);
    write(item);
  }

 private:
  TileResult slot_of(const AttentionPlan::Split& split, int32_t partition) {
    return tile_result(plan_.slots_.data() + (split.first_slot + partition) * plan_.slot_floats(), plan_.tile_rows_, dim_);
  }
  static void clear(TileResult r, int32_t rows) {
    std::fill_n(r.max, rows, kNone);
    std::fill_n(r.sum, rows, 0.0f);
  }
  void merge(TileResult part, int32_t rows) {
    for (int32_t r = 0; r < rows; ++r) merge_row(total_, part, r, dim_);
  }

  // The tile's rows against partition i; false if none of them sees a key of it.
  bool partition(const AttentionPlan::Item& item, int32_t i, TileResult out) {
    const AttentionSpan& span = plan_.spans_[static_cast<size_t>(item.span)];
    const int64_t first_key = int64_t{i} * kAttentionPartition;
    int32_t begin[cpu::kMaxTileRows], end[cpu::kMaxTileRows];
    int32_t lowest = kAttentionPartition, highest = 0;
    for (int32_t r = 0; r < item.num_queries; ++r) {
      const int64_t position = int64_t{span.start} + (item.first_query + r) / group_;
      const int64_t oldest = p_.window > 0 ? position - p_.window + 1 : 0;
      begin[r] = static_cast<int32_t>(std::clamp<int64_t>(oldest - first_key, 0, kAttentionPartition));
      end[r] = static_cast<int32_t>(std::clamp<int64_t>(position + 1 - first_key, 0, kAttentionPartition));
      if (begin[r] >= end[r]) continue;
      lowest = std::min(lowest, begin[r]);
      highest = std::max(highest, end[r]);
    }
    if (highest == 0) return false;
    // Blocks that no row sees add weights of zero, so leaving them out changes no bits.
    const int32_t first_block = lowest / kKvBlockTokens, end_block = ceil_div(highest, kKvBlockTokens);
    const std::byte* head_blocks[kPartitionBlocks];
    const int64_t offset = p_.layer_offset + item.kv_head * kv_.head_block_bytes();
    for (int32_t b = first_block; b < end_block; ++b) {
      head_blocks[b - first_block] = p_.arena + span.block_table[i * kPartitionBlocks + b] * p_.block_bytes + offset;
    }
    for (int32_t r = 0; r < item.num_queries; ++r) {
      begin[r] -= first_block * kKvBlockTokens;
      end[r] -= first_block * kKvBlockTokens;
    }
    const int64_t query = (item.kv_head * p_.num_rows + span.first_row) * group_ + item.first_query;
    attend_({.queries = p_.queries + query * query_bytes_, .num_rows = item.num_queries, .head_blocks = head_blocks,
             .num_blocks = end_block - first_block, .begin = begin, .end = end, .kv = kv_, .cold = span.num_rows * group_ <= plan_.tile_rows_,
             .scale = p_.scale * static_cast<float>(std::numbers::log2e), .scores = scores_,
             .weights = weights_, .out = out.values, .max = out.max, .sum = out.sum});
    return true;
  }

  void write(const AttentionPlan::Item& item) {
    const AttentionSpan& span = plan_.spans_[static_cast<size_t>(item.span)];
    for (int32_t r = 0; r < item.num_queries; ++r) {
      const int64_t query = item.first_query + r, row = span.first_out_row + query / group_, head = item.kv_head * group_ + query % group_;
      float* out = p_.out + row * p_.ld_out + head * kv_.head_dim;
      const float* values = total_.values + int64_t{r} * dim_;
      const float inverse = 1 / total_.sum[r];
      for (int32_t i = 0; i < kv_.head_dim; ++i) out[i] = values[i] * inverse;
    }
  }

  const AttentionParams& p_;
  AttentionPlan& plan_;
  const KvShape kv_;
  const int32_t group_, dim_;
  const int64_t query_bytes_;
  const cpu::AttendPartition attend_;
  float* scores_;
  float* weights_;
  TileResult total_, part_;
};

void attention(const AttentionParams& p, AttentionPlan& plan, Team& team) {
  DCHECK(team.size() <= plan.limits_.num_threads);
  AttentionWorker worker(p, plan, plan.scratch_.data() + team.index() * plan.scratch_floats_);
  const int64_t num_items = static_cast<int64_t>(plan.num_items_);
  const int64_t first = plan.uses_[static_cast<size_t>(8 * team.index())]++ * (num_items + team.size());
  for (;;) {
    const int64_t i = plan.next_item_.fetch_add(1, std::memory_order_relaxed) - first;
    if (i >= num_items) return;
    worker.run(plan.items_[static_cast<size_t>(i)]);
  }
}

}  // namespace deepinfer
