// The flags of the block store, and the store that they ask for: directory, a shared one behind it, budgets, retention classes, encryption. Needs the model's digest,
// so it is opened after the weights were found and before the engine starts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/flags.h"
#include "kv/segment_store.h"
#include "model/model.h"

namespace deepinfer::apps {

struct CacheFlags {
  std::string cache_dir, cache_shared, cache_key_file, cache_index;
  std::string retention = "chat=168h,agent=72h";
  std::optional<uint64_t> cache_budget, cache_shared_budget;

  void add_to(Flags& flags);
  bool wanted() const { return !cache_dir.empty(); }
  // kInvalidArgument: a flag was given that is nothing without a directory, or directories that cannot stand together.
  Result<> check() const;
};

// "chat=168h,agent=72h": the first is for requests that name none. Errors: kInvalidArgument.
Result<std::vector<kv::RetentionClass>> parse_retention(const std::string& text);

// A tenth of the file system, at most 64 GiB.
Result<uint64_t> default_cache_budget(const std::string& dir);

struct OpenFolder {
  std::shared_ptr<io::Disk> disk;
  kv::StoreFolder folder;
};
struct OpenCache {
  OpenFolder dir;
  std::optional<OpenFolder> shared;  // behind it, under the same secret
};
// The directories alone: what the engine's secret comes from. A shared one that cannot be reached is told of on stderr. Errors: those of
// open_store_folder and open_store_folders.
Result<OpenCache> open_cache(const CacheFlags& flags);

struct CachedModel {
  std::string weights;       // digest
  std::string architecture;  // and version of the computation
  const model::KvLayout* layout;
};
Result<std::unique_ptr<kv::BlockStore>> open_store(const CacheFlags& flags, const OpenCache& cache, const CachedModel& model);

// A digest of all weights of a model, and of what says how they are used: BLAKE2b over its files in pieces, on all threads. It takes as long as reading them
// once, so the result is kept in the cache directory under the files' identity (device, inode, size, times of change, a few pages). Errors: those of reading.
Result<std::string> weights_digest(const std::string& path, io::Disk& disk, const std::string& dir, int num_threads);

}  // namespace deepinfer::apps
