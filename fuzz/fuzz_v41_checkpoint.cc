// LIBS: di_model
// A DeepSeek-V4.1 checkpoint that somebody damaged. The input is a list of edits to the files of a small good one, so that every input
// lies near what loads; an empty one is the good checkpoint, which must load. What still loads must also compute.
//
// An edit: file u8 (0 config.json, 1 the index, 2 the Engram token map, 3… the shards; modulo their number; the top bit: `position` counts
// bytes, else 1/65536 of the file) | operation u8 | position u16 | length u8 | `length` bytes.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "io/mapped_file.h"
#include "model/safetensors.h"
#include "model/v41.h"
#include "model/v41_synth.h"

using namespace deepinfer;
using namespace deepinfer::model;

namespace {

struct Files {
  std::string config, index, token_map;
  std::map<std::string, std::string> shards;
};

Files make_good_files() {
  const std::string folder = (std::filesystem::temp_directory_path() / ("fuzz_v41_" + std::to_string(::getpid()))).string();
  const V41SynthSizes sizes{.layers = 4, .experts = 3, .experts_per_token = 2, .draft_stages = 1, .vision_layers = 1};
  CHECK(write_v41_synth(folder, v41_synth_shape("v4.1-tiny", sizes).value(), {.shard_bytes = 300'000}).has_value());
  const auto read = [&](const std::string& name) { return io::read_small_file(folder + "/" + name, 64 << 20).value(); };
  Files files{read("config.json"), read("model.safetensors.index.json"), read("engram_token_map.json"), {}};
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.shards[entry.path().filename()] = read(entry.path().filename());
  std::filesystem::remove_all(folder);
  CHECK(files.shards.size() >= 2);
  return files;
}

void edit(std::string& file, uint8_t operation, size_t at, std::string_view text) {
  switch (operation % 6) {
    case 0: file.replace(at, text.size(), text); break;
    case 1: file.insert(at, text); break;
    case 2: file.erase(at, text.size()); break;
    case 3: file.replace(at, text.size(), std::string(text.size(), '\xff')); break;
    case 4: file.resize(at); break;
    case 5: {  // the next number in the text becomes another
      const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == 'e'; };
      const auto begin = std::find_if(file.begin() + static_cast<std::ptrdiff_t>(at), file.end(), [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
      file.replace(begin, std::find_if_not(begin, file.end(), digit), text.begin(), text.end());
      break;
    }
  }
}

void apply_edits(ByteReader in, Files& files) {
  std::vector<std::string*> all{&files.config, &files.index, &files.token_map};
  for (auto& [name, bytes] : files.shards) all.push_back(&bytes);
  while (in.ok() && in.remaining() > 0) {
    const uint8_t which = in.u8(), operation = in.u8();
    const size_t position = in.u16(), length = std::min<size_t>(in.u8(), in.remaining());
    std::string& file = *all[(which & 0x7f) % all.size()];
    const size_t at = std::min(which >= 0x80 ? position : position * file.size() >> 16, file.size());
    edit(file, operation, at, in.text(length));
  }
}

// A step of three rows, if its workspace is of a bearable size.
void compute(const V41Config& config, V41Weights weights, EngramHash engram, std::unique_ptr<Checkpoint> checkpoint) {
  if (int64_t{config.sliding_window + config.index_topk} * config.head_dim > 1 << 22) return;
  const auto model = V41::create(config, std::move(weights), std::move(engram), std::move(checkpoint));
  static const auto workers = Workers::create(1, false);
  model->reserve({.max_rows = 3, .max_sequences = 1, .max_logit_rows = 1, .max_context = 16}, *workers);
  std::vector<std::byte> arena(static_cast<size_t>(model->kv_layout().block_bytes)), state(static_cast<size_t>(model->kv_layout().state_bytes + 64));
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(state.data()) + 63) / 64 * 64);
  std::vector<TokenId> tokens{5, config.image_token_id, 7};
  for (TokenId& token : tokens) token = std::clamp(token, 0, config.vocab_size - 1);
  const BlockId block = 0;
  const SequenceRows rows{.first_row = 0, .num_rows = 3, .start = 0, .block_table = {&block, 1}, .state = aligned};
  std::vector<float> logits(static_cast<size_t>(config.vocab_size));
  const int32_t last = 2;
  model->forward({.tokens = tokens, .sequences = {&rows, 1}, .logit_rows = {&last, 1}}, arena.data(), logits.data(), *workers).value();
}

Result<> load(const Files& files) {
  const auto shard = [&](const std::string& name) -> Result<std::span<const std::byte>> {
    const auto found = files.shards.find(name);
    if (found == files.shards.end()) return Error{Code::kNotFound, name};
    return std::as_bytes(std::span(found->second));
  };
  DI_TRY(const V41Config config, v41_config_from_json(files.config, "config.json"));
  DI_TRY(auto checkpoint, Safetensors::parse_shards(files.index, shard, "fuzz"));
  DI_TRY(V41Weights weights, bind_v41(*checkpoint, config));
  DI_TRY(auto token_map, engram_token_map_from_json(files.token_map, "engram_token_map.json"));
  DI_TRY(EngramHash engram, EngramHash::create(config, std::move(token_map)));
  compute(config, std::move(weights), std::move(engram), std::move(checkpoint));
  return {};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Files good = make_good_files();
  Files files = good;
  apply_edits(ByteReader(std::as_bytes(std::span(data, size))), files);
  const Result<> loaded = load(files);
  CHECK(size > 0 || loaded.has_value());
  return 0;
}
