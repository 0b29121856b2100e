#include "model/v41_dump.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "io/output_file.h"
#include "kernels/block_quantize.h"
#include "kernels/pages.h"
#include "model/safetensors_writer.h"
#include "model/v41_math.h"
#include "model/v41_state.h"

namespace deepinfer::model {
namespace {

struct Array {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

template <class T>
Array array_of(std::string dtype, std::vector<int64_t> shape, const T* data) {
  const int64_t n = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return {std::move(dtype), std::move(shape), std::string(reinterpret_cast<const char*>(data), static_cast<size_t>(n) * sizeof(T))};
}

Array bf16_array(std::vector<int64_t> shape, std::span<const float> values) {
  std::vector<bf16> rounded;
  for (const float x : values) rounded.push_back(to_bf16(x));  // they are bf16 values already
  return array_of("BF16", std::move(shape), rounded.data());
}

// Keeps what a step shows, under the goldens' names and in their formats.
class Recorder final : public V41Observer {
 public:
  explicit Recorder(const V41Config& config) : c_(config) {}

  void floats(std::string_view name, int32_t layer, int64_t rows, int64_t width, float* data) override {
    const std::span<const float> values(data, static_cast<size_t>(rows * width));
    if (name == "hc.attn" || name == "hc.ffn") return coefficients(name, layer, rows, data);
    if (name == "X" || name == "X_engram") {
      add(name, layer, bf16_array({rows, V41Config::kStreams, width / V41Config::kStreams}, values));
      if (name == "X" ? layer + 1 < c_.num_hidden_layers : true) entering_[name == "X" ? layer + 1 : layer].assign(values.begin(), values.end());
    } else if (name == "pre" || name == "router_w") {
      add(name, layer, array_of("F32", {rows, width}, data));
    } else {
      add(name, layer, bf16_array({rows, width}, values));
    }
  }

  void integers(std::string_view name, int32_t layer, int64_t rows, int64_t width, const int32_t* data) override {
    if (name == "engram_ids") engram_ids_.emplace_back(data, data + rows * width);
    else add(name, layer, array_of("I32", {rows, width}, data));
  }

  void bytes(std::string_view name, int32_t layer, int64_t rows, int64_t width, const uint8_t* data) override {
    if (name == "candidates") candidates(layer, rows, width, data);
    else add(name, layer, array_of("U8", {rows, width}, data));
  }

  void add(std::string_view name, int32_t layer, Array array) {
    arrays_[layer].emplace(layer < 0 ? std::string(name) : fmt::format("{}.{}", name, layer), std::move(array));
  }

  // Once the step is over: what is joined from several layers.
  void finish(int64_t rows) {
    const int64_t tables = static_cast<int64_t>(engram_ids_.size());
    if (tables > 0) {
      const int64_t columns = static_cast<int64_t>(engram_ids_[0].size()) / rows;
      std::vector<int64_t> ids;
      for (int64_t r = 0; r < rows; ++r)
        for (const auto& table : engram_ids_) ids.insert(ids.end(), table.begin() + r * columns, table.begin() + (r + 1) * columns);
      add("engram_ids", -1, array_of("I64", {rows, tables, columns}, ids.data()));
    }
    if (c_.dspark_target_layer_ids.empty()) return;
    const int64_t d = c_.hidden_size, targets = static_cast<int64_t>(c_.dspark_target_layer_ids.size());
    std::vector<float> taps(static_cast<size_t>(rows * targets * d));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t t = 0; t < targets; ++t) {
        const float* streams = entering_[c_.dspark_target_layer_ids[static_cast<size_t>(t)]].data() + r * V41Config::kStreams * d;
        for (int64_t i = 0; i < d; ++i) taps[static_cast<size_t>((r * targets + t) * d + i)] = (streams[i] + streams[d + i] + streams[2 * d + i] + streams[3 * d + i]) * 0.25f;
      }
    add("taps", -1, bf16_array({rows, targets * d}, taps));
  }

  const std::map<std::string, Array>& arrays(int32_t layer) { return arrays_[layer]; }

 private:
  void coefficients(std::string_view name, int32_t layer, int64_t rows, const float* data) {
    constexpr int64_t kStreams = V41Config::kStreams, kWidth = 2 * kStreams + kStreams * kStreams;
    for (const auto& [part, offset, width] : {std::tuple("pre", int64_t{0}, kStreams), {"post", kStreams, kStreams}, {"comb", 2 * kStreams, kStreams * kStreams}}) {
      std::vector<float> values;
      for (int64_t r = 0; r < rows; ++r) values.insert(values.end(), data + r * kWidth + offset, data + r * kWidth + offset + width);
      const bool matrix = width > kStreams;
      add(fmt::format("{}.{}", name, part), layer, array_of("F32", matrix ? std::vector<int64_t>{rows, kStreams, kStreams} : std::vector<int64_t>{rows, width}, values.data()));
    }
  }

  // A mask over compressed rows instead of blocks; rows are the positions from 0 on. A chosen block counts whole, rows that the position
  // does not see yet too, as in the goldens.
  void candidates(int32_t layer, int64_t rows, int64_t max_blocks, const uint8_t* chosen) {
    const int64_t all = c_.rows_after(layer, rows);
    std::string mask(static_cast<size_t>(rows * all), '\0');
    const int64_t size = c_.candidate_block_size;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t end = std::min(all, (c_.rows_after(layer, r + 1) + size - 1) / size * size);
      for (int64_t t = 0; t < end; ++t) mask[static_cast<size_t>(r * all + t)] = static_cast<char>(chosen[r * max_blocks + t / size]);
    }
    add("candidates", layer, array_of("U8", {rows, all}, mask.data()));
  }

  const V41Config& c_;
  std::map<int32_t, std::map<std::string, Array>> arrays_;  // by layer
  std::map<int32_t, std::vector<float>> entering_;          // the streams that a layer begins with
  std::vector<std::vector<int32_t>> engram_ids_;            // a table after the other
};

// Compressed rows and index keys of a source, as its blocks hold them and as numbers.
void add_stored_rows(const V41Config& c, const V41Layout& layout, std::byte* arena, int32_t source, int32_t num_tokens, Recorder& recorder) {
  const int32_t layer = c.kv_source_layer_ids[static_cast<size_t>(source)], rows = c.rows_after(layer, num_tokens);
  std::vector<uint8_t> main_codes, main_scales, key_codes, key_scales;
  std::vector<float> main(static_cast<size_t>(int64_t{rows} * c.head_dim)), keys(static_cast<size_t>(int64_t{rows} * c.index_head_dim));
  for (int32_t j = 0; j < rows; ++j) {
    std::byte* block = arena + layout.block_of(source, j) * layout.block_bytes();
    const V41Layout::PackedRow row = layout.main_row(block, source, j), key = layout.index_key(block, source, j);
    main_codes.insert(main_codes.end(), row.codes, row.codes + c.head_dim / 2);
    main_scales.insert(main_scales.end(), row.scales, row.scales + c.head_dim / 16);
    key_codes.insert(key_codes.end(), key.codes, key.codes + c.index_head_dim / 2);
    key_scales.insert(key_scales.end(), key.scales, key.scales + c.index_head_dim / 32);
    ref::dequantize_fp4_e4m3(row.codes, reinterpret_cast<const e4m3*>(row.scales), c.head_dim, main.data() + int64_t{j} * c.head_dim);
    ref::dequantize_fp4_e8m0(key.codes, reinterpret_cast<const e8m0*>(key.scales), c.index_head_dim, keys.data() + int64_t{j} * c.index_head_dim);
  }
  recorder.add("main_rows", layer, bf16_array({rows, c.head_dim}, main));
  recorder.add("main_codes", layer, array_of("U8", {rows, c.head_dim / 2}, main_codes.data()));
  recorder.add("main_scales", layer, array_of("U8", {rows, c.head_dim / 16}, main_scales.data()));
  recorder.add("index_keys", layer, bf16_array({rows, c.index_head_dim}, keys));
  recorder.add("index_key_codes", layer, array_of("U8", {rows, c.index_head_dim / 2}, key_codes.data()));
  recorder.add("index_key_scales", layer, array_of("U8", {rows, c.index_head_dim / 32}, key_scales.data()));
}

Result<> check(const V41& model, std::span<const TokenId> tokens, std::span<const int32_t> layers) {
  const int64_t longest = std::min<int64_t>(kMaxDumpTokens, model.info().max_context);
  if (tokens.empty() || static_cast<int64_t>(tokens.size()) > longest)
    return Error{Code::kInvalidArgument, fmt::format("a prompt of {} tokens; 1 to {} can be dumped", tokens.size(), longest)};
  for (const TokenId token : tokens)
    if (token < 0 || token >= model.info().vocab_size) return Error{Code::kInvalidArgument, fmt::format("token {} is not in the vocabulary of {}", token, model.info().vocab_size)};
  for (const int32_t layer : layers)
    if (layer < 0 || layer >= model.info().num_layers) return Error{Code::kInvalidArgument, fmt::format("layer {} is not one of 0 to {}", layer, model.info().num_layers - 1)};
  return {};
}

Result<> write(const std::map<std::string, Array>& arrays, const std::string& path) {
  const auto width = [](const Array& a) { return a.dtype == "I64" ? 8 : a.dtype == "F32" || a.dtype == "I32" ? 4 : a.dtype == "BF16" ? 2 : 1; };
  std::vector<std::tuple<int, std::string, const Array*>> ordered;  // wider numbers first
  for (const auto& [name, array] : arrays) ordered.emplace_back(-width(array), name, &array);
  std::sort(ordered.begin(), ordered.end());
  std::vector<SafetensorsEntry> entries;
  for (const auto& [order, name, array] : ordered) entries.push_back({name, array->dtype, array->shape, static_cast<int64_t>(array->bytes.size())});
  io::OutputFile file(path);
  file.write(safetensors_header(entries));
  for (const auto& [order, name, array] : ordered) file.write(array->bytes);
  return file.finish();
}

}  // namespace

Result<> dump_v41(V41& model, std::span<const TokenId> tokens, std::span<const int32_t> layers, const std::string& path, Workers& workers) {
  DI_TRY(check(model, tokens, layers));
  const V41Config& c = model.config();
  const V41Layout layout(c);
  const auto n = static_cast<int32_t>(tokens.size());
  const int64_t num_blocks = (n + V41Layout::kBlockTokens - 1) / V41Layout::kBlockTokens;
  const Pages arena(num_blocks * layout.block_bytes()), state(layout.state_bytes());
  std::vector<BlockId> blocks(static_cast<size_t>(num_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<int32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> logits(tokens.size() * static_cast<size_t>(c.vocab_size));

  Recorder recorder(c);
  model.reserve({.max_rows = n, .max_sequences = 1, .max_logit_rows = n, .max_context = n}, workers);
  model.observe(&recorder);
  const SequenceRows sequence{.first_row = 0, .num_rows = n, .start = 0, .block_table = blocks, .state = state.data()};
  const Result<> ran = model.forward({.tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = rows}, arena.data(), logits.data(), workers);
  model.observe(nullptr);
  DI_TRY(ran);

  for (size_t source = 0; source < c.kv_source_layer_ids.size(); ++source) add_stored_rows(c, layout, arena.data(), static_cast<int32_t>(source), n, recorder);
  recorder.add("tokens", -1, array_of("I32", {n}, tokens.data()));
  recorder.add("logits", -1, array_of("F32", {n, c.vocab_size}, logits.data()));
  recorder.finish(n);
  std::map<std::string, Array> wanted = recorder.arrays(-1);
  for (int32_t layer = 0; layer < c.num_hidden_layers; ++layer)
    if (layers.empty() || std::find(layers.begin(), layers.end(), layer) != layers.end()) wanted.insert(recorder.arrays(layer).begin(), recorder.arrays(layer).end());
  return write(wanted, path);
}

}  // namespace deepinfer::model
