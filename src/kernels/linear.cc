// Owns packed panels and decides, for each call, which kernel sees which rows and panels. The arithmetic is in kernels/cpu.
#include "kernels/linear.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/half.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/panels.h"

namespace deepinfer {
namespace {

using panels::kGroup;

constexpr int64_t kMaxThreads = 512;  // each has a row of its own in an ActivationBuffer
constexpr int64_t kRowPadding = 16;   // rows past the last that a kernel may read
// Most bytes a number takes in a row record, should a matrix mix all dtypes: int8 and scales 1.2, starts and sums 2.5, two kinds of
// float 8, bf16 2.
constexpr int64_t kMaxRecordBytes = 14;

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

const cpu::Kernels& kernels_of(Isa isa) {
  const cpu::Kernels* kernels = nullptr;
  switch (isa) {
    case Isa::kPortable: kernels = cpu::portable_kernels(); break;
    case Isa::kAvx2:
    case Isa::kAvx512f: kernels = cpu::avx2_kernels(); break;
    case Isa::kAvxVnni: kernels = cpu::avxvnni_kernels(); break;
    case Isa::kAvx512: kernels = cpu::avx512_kernels(); break;
    case Isa::kAmx: kernels = cpu::amx_kernels(); break;
  }
  CHECK(kernels != nullptr);
  return *kernels;
}

// Sums of quantised activations as one kind of integer format wants them.
struct SumForm {
  int sub_group, zero_point;
  bool offsets;
  int64_t start = 0, sum = 0;  // places in a record
};

enum class Form : uint8_t { kInteger, kBf16, kFloat, kRoundedFloat };

struct Source {
  cpu::PanelSet set;
  Form form;
  size_t sum_form;  // of kInteger
};

class PackedLinear final : public Linear {
 public:
  PackedLinear(std::span<const LinearSource> sources, int64_t cols, const Options& options, Workers& workers)
      : options_(options), kernels_(kernels_of(options.isa)) {
    cols_ = cols;
    CHECK(cols > 0);
    CHECK(kernels_.row_padding <= kRowPadding);
    for (const LinearSource& source : sources) add(source);
    place_record();
    pack(sources, workers);
  }

  int64_t packed_bytes() const override { return pages_.size(); }

  void prepare(const float* x, int64_t ldx, int64_t num_rows, ActivationBuffer& act, Team& team) const override {
    CHECK(num_rows <= act.max_rows());
    CHECK(cols_ <= act.max_cols());
    CHECK(team.size() <= kMaxThreads);
    if (num_rows == 1) {  // cheaper than the barrier that sharing it would take
      prepare_row(x, act.data() + team.index() * record_bytes_);
      return;
    }
    const auto [begin, end] = team.range(num_rows);
    for (int64_t row = begin; row < end; ++row) prepare_row(x + row * ldx, act.data() + row * record_bytes_);
  }

  void apply(const ActivationBuffer& act, int64_t num_rows, const float* bias, float* y, int64_t ldy, Team& team) const override {
    if (num_rows <= 0) return;
    const std::byte* first = act.data() + (num_rows == 1 ? team.index() * record_bytes_ : 0);
    for_own_panels(team, [&](size_t i, int64_t from, int64_t to) { apply_source(sources_[i], first, num_rows, {y, ldy, bias}, from, to); });
  }

 private:
  // visit(source, begin, end): this thread's panels. The one cut of the work, so that a thread reads the memory that it wrote when
  // packing: the kernel places a page on the memory node of the processor that touches it first.
  template <class Visit>
  void for_own_panels(const Team& team, Visit visit) const {
    // Panels go out in pairs, which wide kernels take together, unless that leaves threads without work.
    const int64_t unit = num_panels_ >= int64_t{8} * team.size() ? 2 : 1;
    const auto [unit_begin, unit_end] = team.range((num_panels_ + unit - 1) / unit);
    const int64_t begin = unit_begin * unit, end = std::min(unit_end * unit, num_panels_);
    int64_t set_begin = 0;
    for (size_t i = 0; i < sources_.size(); ++i) {
      const int64_t num_panels = sources_[i].set.num_panels;
      const int64_t from = std::max(begin - set_begin, int64_t{0}), to = std::min(end - set_begin, num_panels);
      if (from < to) visit(i, from, to);
      set_begin += num_panels;
    }
  }

  void add(const LinearSource& source) {
    const DTypeInfo info = dtype_info(source.dtype);
    CHECK(is_self_contained(source.dtype));
    CHECK(source.rows > 0);
    CHECK(cols_ % info.block_size == 0);
    Source out{};
    out.set = {.dtype = source.dtype,
               .format = panels::format_of(source.dtype),
               .data = nullptr,
               .stride = panels::panel_stride(source.dtype, cols_),
               .rows = source.rows,
               .cols = cols_,
               .num_panels = panels::num_panels(source.rows),
               .first_output = rows_};
    out.form = Form::kFloat;
    if (options_.activations == Activations::kFast) {
      if (panels::is_integer(source.dtype)) {
        out.form = Form::kInteger;
        out.sum_form = find_sum_form(out.set.format);
      } else if (source.dtype == DType::kBF16) {
        out.form = kernels_.bf16_products ? Form::kBf16 : Form::kRoundedFloat;
      }
    }
    sources_.push_back(out);
    rows_ += source.rows;
    num_panels_ += out.set.num_panels;
  }

  size_t find_sum_form(const panels::Format& format) {
    for (size_t i = 0; i < sum_forms_.size(); ++i) {
      if (sum_forms_[i].sub_group == format.sub_group && sum_forms_[i].zero_point == format.zero_point) return i;
    }
    sum_forms_.push_back({format.sub_group, format.zero_point, format.offsets});
    return sum_forms_.size() - 1;
  }

  bool needs(Form form) const {
    return std::any_of(sources_.begin(), sources_.end(), [&](const Source& source) { return source.form == form; });
  }

  // Where each form lies in a row's record; unused ones take nothing. The stride is an odd number of cache lines.
  void place_record() {
    int64_t place = 0;
    const auto take = [&](int64_t bytes) {
      const int64_t at = place;
      place += round_up(bytes, 64);
      return at;
    };
    const int64_t padded = round_up(cols_, 64);
    if (needs(Form::kInteger)) {
      q_ = take(padded);
      scale_ = take(padded / kGroup * 4);
      for (SumForm& form : sum_forms_) {
        form.start = take(padded / form.sub_group * 4);
        if (form.offsets) form.sum = take(padded / form.sub_group * 4);
      }
    }
    if (needs(Form::kBf16)) bf16_ = take(round_up(cols_, 32) * 2);
    if (needs(Form::kFloat)) float_ = take(cols_ * 4);
    if (needs(Form::kRoundedFloat)) rounded_ = take(cols_ * 4);
    record_bytes_ = (place / 64 | 1) * 64;
  }

  void pack(std::span<const LinearSource> sources, Workers& workers) {
    int64_t bytes = 0;
    for (const Source& source : sources_) bytes += source.set.num_panels * source.set.stride;
    pages_ = Pages(bytes);
    std::byte* place = pages_.data();
    for (Source& source : sources_) {
      source.set.data = place;
      place += source.set.num_panels * source.set.stride;
    }
    workers.run([&](Team& team) {
      for_own_panels(team, [&](size_t i, int64_t begin, int64_t end) {
        const cpu::PanelSet& set = sources_[i].set;
        const int64_t row = row_bytes(set.dtype, cols_);
        for (int64_t panel = begin; panel < end; ++panel) {
          const int64_t first = panel * panels::kOutputs;
          panels::pack_panel(set.dtype, sources[i].data + first * row, std::min<int64_t>(panels::kOutputs, set.rows - first), cols_,
                             pages_.data() + (set.data - pages_.data()) + panel * set.stride);
        }
      });
    });
  }

  void prepare_row(const float* x, std::byte* record) const {
    if (needs_integer()) prepare_integer(x, record);
    if (bf16_ >= 0) {
      auto* out = reinterpret_cast<uint16_t*>(record + bf16_);
      kernels_.round_to_bf16(x, cols_, out);
      std::fill(out + cols_, out + round_up(cols_, 32), uint16_t{0});
    }
    if (float_ >= 0) std::memcpy(record + float_, x, static_cast<size_t>(cols_) * 4);
    if (rounded_ >= 0) {
      auto* out = reinterpret_cast<float*>(record + rounded_);
      for (int64_t i = 0; i < cols_; ++i) out[i] = to_f32(to_bf16(x[i]));
    }
  }

  bool needs_integer() const { return q_ >= 0; }

  void prepare_integer(const float* x, std::byte* record) const {
    auto* q = reinterpret_cast<int8_t*>(record + q_);
    auto* scale = reinterpret_cast<float*>(record + scale_);
    const int64_t padded = round_up(cols_, 64);
    // Sums of each 16 numbers; the padding (a half block of 64) is a group of zeros. On the stack in pieces: a row may be long.
    constexpr int64_t kPiece = 1024;
    int32_t sum16[kPiece / 16];
    for (int64_t k = 0; k < padded; k += kPiece) {
      const int64_t count = std::min(kPiece, cols_ - k), whole = std::min(kPiece, padded - k);
      kernels_.quantize_row(x + k, count, q + k, scale + k / kGroup, sum16);
      if (whole > count) {
        std::memset(q + k + count, 0, static_cast<size_t>(whole - count));
        std::fill(scale + (k + count) / kGroup, scale + (k + whole) / kGroup, 0.0f);
        std::fill(sum16 + count / 16, sum16 + whole / 16, 0);
      }
      for (const SumForm& form : sum_forms_) finish_sums(form, k, whole, sum16, scale, record);
    }
  }

  // Sub groups of numbers [k, k + count).
  void finish_sums(const SumForm& form, int64_t k, int64_t count, const int32_t* sum16, const float* scale, std::byte* record) const {
    auto* start = reinterpret_cast<int32_t*>(record + form.start);
    auto* sum = reinterpret_cast<float*>(record + form.sum);
    const int64_t size = form.sub_group, first = k / size;
    for (int64_t g = 0; g < count / size; ++g) {
      const int32_t total = size == 16 ? sum16[g] : sum16[2 * g] + sum16[2 * g + 1];
      start[first + g] = kernels_.integer_bias - form.zero_point * total;
      if (form.offsets) sum[first + g] = scale[(k + g * size) / kGroup] * static_cast<float>(total);
    }
  }

  void apply_source(const Source& source, const std::byte* first, int64_t num_rows, const cpu::Output& out, int64_t begin,
                    int64_t end) const {
    const auto at = [&](int64_t place) { return place >= 0 ? first + place : nullptr; };
    cpu::Rows rows{.stride = record_bytes_, .bf16 = at(bf16_)};
    switch (source.form) {
      case Form::kInteger: {
        const SumForm& form = sum_forms_[source.sum_form];
        rows.q = at(q_);
        rows.scale = at(scale_);
        rows.start = at(form.start);
        rows.sum = form.offsets ? at(form.sum) : nullptr;
        return kernels_.apply_integer(source.set, rows, num_rows, out, begin, end);
      }
      case Form::kBf16: return kernels_.apply_bf16(source.set, rows, num_rows, out, begin, end);
      case Form::kFloat: rows.f32 = at(float_); break;
      case Form::kRoundedFloat: rows.f32 = at(rounded_); break;
    }
    kernels_.apply_float(source.set, rows, num_rows, out, begin, end);
  }

  const Options options_;
  const cpu::Kernels& kernels_;
  std::vector<Source> sources_;
  std::vector<SumForm> sum_forms_;
  int64_t num_panels_ = 0;
  Pages pages_;
  // Places in a row's record; -1: not there.
  int64_t record_bytes_ = 0, q_ = -1, scale_ = -1, bf16_ = -1, float_ = -1, rounded_ = -1;
};

}  // namespace

void ActivationBuffer::reserve(int64_t max_rows, int64_t max_cols) {
  CHECK(max_rows > 0);
  CHECK(max_cols > 0);
  max_rows_ = max_rows;
  max_cols_ = max_cols;
  const int64_t record = round_up(max_cols, 64) * kMaxRecordBytes + 1024;
  pages_ = Pages((std::max(max_rows, kMaxThreads) + kRowPadding) * record);
}

std::unique_ptr<Linear> Linear::pack(std::span<const LinearSource> sources, int64_t cols, const Options& options, Workers& workers) {
  CHECK(!sources.empty());
  return std::make_unique<PackedLinear>(sources, cols, options, workers);
}

}  // namespace deepinfer
