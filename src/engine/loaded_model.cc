#include "engine/loaded_model.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>

#include "tokenizer/engram_map.h"

namespace deepinfer::engine {
namespace {

// A folder's name or a file's without its extension: what a user would call it.
std::string served_name(const std::string& path) {
  std::filesystem::path p = std::filesystem::weakly_canonical(path);
  if (p.extension() == ".gguf" || p.extension() == ".safetensors") p = p.stem();
  return p.filename().string();
}

int64_t last_change_s(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? int64_t{status.st_mtime} : 0;
}

ModelCard make_card(const std::string& path, const model::ModelSummary& summary, const tokenizer::Tokenizer* tokenizer) {
  ModelCard card{.name = served_name(path),
                 .architecture = summary.architecture,
                 .vocab_size = summary.vocab_size,
                 .max_context = summary.max_context,
                 .created_unix_s = last_change_s(path),
                 .stop_token_ids = summary.eos_ids};
  if (tokenizer == nullptr) return card;
  // Both sources count: the tokenizer knows an end of turn that many a config does not list.
  for (const TokenId id : tokenizer->stop_ids())
    if (std::find(card.stop_token_ids.begin(), card.stop_token_ids.end(), id) == card.stop_token_ids.end()) card.stop_token_ids.push_back(id);
  return card;
}

// The embedding may have more rows than the tokenizer has tokens (padding for alignment), never fewer.
Result<> check_vocabulary(const OpenModel& open, int32_t vocab_size) {
  const int32_t tokens = open.text.tokenizer->vocab_size();
  if (tokens > vocab_size)
    return Error{Code::kCorruption, fmt::format("{}: the tokenizer has {} tokens, the embedding {} rows", open.path, tokens, vocab_size)};
  return {};
}

}  // namespace

Result<OpenModel> open_model(const std::string& path, TextNeed need) {
  OpenModel open;
  open.path = path;
  DI_TRY(open.file, model::open_model_file(path));
  DI_TRY(open.config, model::read_model_config(open.file));
  const model::ModelSummary summary = model::summary_of(open.config);
  if (need == TextNeed::kAlways || model::needs_engram_tokens(open.config)) {
    DI_TRY(open.text, read_model_text(open.file));
    DI_TRY(check_vocabulary(open, summary.vocab_size));
  }
  if (model::needs_engram_tokens(open.config)) open.engram_tokens = tokenizer::engram_token_map(*open.text.tokenizer, summary.vocab_size);
  // An error must come before anything slow.
  DI_TRY(model::check_model(open.file, open.config, {.engram_tokens = open.engram_tokens}));
  open.card = make_card(path, summary, open.text.tokenizer.get());
  return open;
}

Result<ModelText> open_text(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    // The weights of a folder are not looked at.
    model::ModelFile folder;
    folder.folder = path;
    return read_model_text(folder);
  }
  DI_TRY(const model::ModelFile file, model::open_model_file(path, model::GgufFile::UnsupportedTypes::kList));
  return read_model_text(file);
}

Result<LoadedModel> load_weights(OpenModel open, const WeightOptions& options, Workers& workers) {
  if (options.max_context > open.card.max_context)
    return Error{Code::kInvalidArgument, fmt::format("{}: a context of {} was asked for; the model has {}", open.path, options.max_context, open.card.max_context)};
  LoadedModel loaded;
  DI_TRY(loaded.model, model::load_model(std::move(open.file), open.config,
                                         {.activations = options.activations, .kv_format = options.kv_format, .engram_tokens = std::move(open.engram_tokens), .memory = options.memory},
                                         workers));
  loaded.text = std::move(open.text);
  loaded.card = std::move(open.card);
  if (options.max_context > 0) loaded.card.max_context = options.max_context;
  return loaded;
}

}  // namespace deepinfer::engine
