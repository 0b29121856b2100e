#include "apps/cache_flags.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <thread>

#include "apps/cache_disk.h"
#include "base/units.h"
#include "io/mapped_file.h"
#include "io/redis.h"
#include "io/s3_disk.h"
#include "kv/tiered_store.h"

namespace deepinfer::apps {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = size_t{64} << 20;
constexpr uint64_t kLargestDefaultBudget = uint64_t{64} << 30;

bool has_extension(const fs::path& path, const char* extension) { return path.extension() == extension; }

// The files that hold weights or say how they are used, in order: of a folder, and of one file of a folder what stands beside it. Whatever a config names
// beside the weights is JSON too.
Result<std::vector<std::string>> model_files(const std::string& path) {
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  if (!is_folder && !has_extension(path, ".safetensors")) return std::vector<std::string>{path};
  std::vector<std::string> out;
  fs::path folder = is_folder ? fs::path(path) : fs::path(path).parent_path();
  if (folder.empty()) folder = ".";
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (has_extension(entry.path(), ".json") || (is_folder && has_extension(entry.path(), ".safetensors"))) out.push_back(entry.path());
  }
  if (error) return Error{Code::kIo, folder.string() + ": " + error.message()};
  if (!is_folder) out.push_back(path);
  std::sort(out.begin(), out.end());
  return out;
}

// A few of a file's pages, evenly spread. Images of machines are built with all times set to one, and two sets of weights of one shape have the same
// size: what the file system says of two files can be the same.
Digest256 sample_of(std::span<const std::byte> bytes) {
  constexpr size_t kSamples = 32, kSampleBytes = 4096;
  Blake2b256 hash;
  for (size_t i = 0; i < kSamples; ++i) {
    const size_t begin = bytes.size() / kSamples * i;
    hash.update(bytes.subspan(begin, std::min(kSampleBytes, bytes.size() - begin)));
  }
  return hash.finish();
}

Digest256 file_digest(std::span<const std::byte> bytes, int num_threads) {
  const size_t num_pieces = (bytes.size() + kPieceBytes - 1) / kPieceBytes;
  std::vector<Digest256> pieces(num_pieces);
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < num_pieces; i = next++) {
      pieces[i] = blake2b_256(bytes.subspan(i * kPieceBytes, std::min(kPieceBytes, bytes.size() - i * kPieceBytes)));
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return blake2b_256(std::as_bytes(std::span(pieces)));
}

void log_line(const std::string& line) { fmt::print(stderr, "deepinfer: {}\n", line); }

// What all stores have in common.
Result<kv::StoreOptions> store_options(const CacheFlags& flags, const CachedModel& model) {
  kv::StoreOptions options{.model = kv::namespace_of(model.weights, model.architecture, model.layout->format, model.layout->block_tokens),
                           .block_tokens = model.layout->block_tokens, .block_bytes = model.layout->block_bytes, .log = log_line};
  DI_TRY(options.classes, parse_retention(flags.retention));
  if (!flags.cache_key_file.empty()) {
    DI_TRY(options.cipher, kv::RowCipher::load(flags.cache_key_file));
  }
  return options;
}

Result<std::unique_ptr<kv::BlockStore>> open_one(const OpenFolder& folder, const std::string& dir, std::optional<uint64_t> budget, kv::StoreOptions options) {
  options.dir = dir;
  options.folder = folder.folder;
  options.whole_segments = io::is_s3_url(dir);
  if (options.whole_segments) options.tier = kv::Tier::kShared;  // nobody can tell whether a block's writer lives
  if (!budget) {
    const Result<uint64_t> own = default_cache_budget(dir);
    const bool is_away = options.may_be_away && !own && own.error().code == Code::kIo;
    if (!own && !is_away) return own.error();
    budget = is_away ? kLargestDefaultBudget : *own;
  }
  options.budget_bytes = *budget;
  DI_TRY(std::unique_ptr<kv::BlockStore> store, kv::SegmentStore::open(folder.disk, std::make_shared<kv::SystemTime>(), std::move(options)));
  return store;
}

}  // namespace

void CacheFlags::add_to(Flags& flags) {
  flags.text("--cache-dir", cache_dir, "DIR", "keeps computed prompts there, or in s3://BUCKET/PREFIX; may be shared", "none");
  flags.size("--cache-budget", cache_budget, "most that the directory may take", "a tenth of the file system, at most 64GiB");
  flags.text("--cache-shared", cache_shared, "DIR", "a shared directory, or s3://BUCKET/PREFIX, behind a local --cache-dir", "none");
  flags.size("--cache-shared-budget", cache_shared_budget, "most that it may take", "likewise");
  flags.text("--retention", retention, "CLASS=TIME", "how long blocks are kept; first: the usual class");
  flags.text("--cache-index", cache_index, "URL", "Redis by which processes tell each other of blocks: redis://HOST:PORT/DB", "none");
  flags.text("--cache-key-file", cache_key_file, "FILE", "encrypts blocks on disk: 32 bytes or 64 hex digits", "none");
}

Result<> CacheFlags::check() const {
  if (cache_shared.empty() && cache_shared_budget) return Error{Code::kInvalidArgument, "--cache-shared-budget is about a shared cache directory; give --cache-shared too"};
  if (wanted() && cache_shared.empty()) return {};
  if (wanted()) {
    if (io::is_s3_url(cache_dir)) return Error{Code::kInvalidArgument, "with --cache-shared, --cache-dir is a directory of this machine, not object storage"};
    std::error_code error;
    if (cache_shared == cache_dir || fs::equivalent(cache_shared, cache_dir, error)) return Error{Code::kInvalidArgument, "--cache-dir and --cache-shared are the same directory"};
    return {};
  }
  const char* given = !cache_shared.empty() ? "--cache-shared" : !cache_index.empty() ? "--cache-index" : cache_budget ? "--cache-budget" : !cache_key_file.empty() ? "--cache-key-file" : nullptr;
  if (given == nullptr) return {};
  return Error{Code::kInvalidArgument, fmt::format("{} is about a cache directory; give --cache-dir too", given)};
}

Result<std::vector<kv::RetentionClass>> parse_retention(const std::string& text) {
  std::vector<kv::RetentionClass> classes;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const size_t equals = item.find('=');
    if (equals == std::string::npos) return Error{Code::kInvalidArgument, fmt::format("--retention: '{}' is not CLASS=TIME", item)};
    const Result<int64_t> time = parse_duration(item.substr(equals + 1));
    if (!time) return Error{Code::kInvalidArgument, "--retention: " + time.error().message};
    const std::string name = item.substr(0, equals);
    const bool twice = std::any_of(classes.begin(), classes.end(), [&](const kv::RetentionClass& c) { return c.name == name; });
    if (twice) return Error{Code::kInvalidArgument, fmt::format("--retention: {} stands twice", name)};
    classes.push_back({.name = name, .seconds = *time / 1'000'000'000});
    begin = end + 1;
  }
  return classes;
}

Result<uint64_t> default_cache_budget(const std::string& dir) {
  if (io::is_s3_url(dir)) return Error{Code::kInvalidArgument, dir + ": object storage has no size of its own; give its budget (--cache-budget, --cache-shared-budget)"};
  struct statvfs s {};
  if (::statvfs(dir.c_str(), &s) != 0) return Error{Code::kIo, dir + ": cannot tell its size; give its budget (--cache-budget, --cache-shared-budget)"};
  return std::min(uint64_t{s.f_blocks} * s.f_frsize / 10, kLargestDefaultBudget);
}

Result<OpenCache> open_cache(const CacheFlags& flags) {
  OpenCache cache;
  DI_TRY(cache.dir.disk, cache_disk(flags.cache_dir));
  if (flags.cache_shared.empty()) {
    DI_TRY(cache.dir.folder, kv::open_store_folder(*cache.dir.disk, flags.cache_dir));
    return cache;
  }
  DI_TRY(const std::shared_ptr<io::Disk> shared, cache_disk(flags.cache_shared));
  DI_TRY(const kv::StoreFolders folders, kv::open_store_folders(*cache.dir.disk, flags.cache_dir, *shared, flags.cache_shared));
  if (folders.away) log_line(fmt::format("cache {}: {}; going on without it until it is there", flags.cache_shared, folders.away->message));
  cache.dir.folder = folders.local;
  cache.shared = OpenFolder{.disk = shared, .folder = folders.shared};
  return cache;
}

Result<std::unique_ptr<kv::BlockStore>> open_store(const CacheFlags& flags, const OpenCache& cache, const CachedModel& model) {
  DI_TRY(kv::StoreOptions options, store_options(flags, model));
  kv::StoreOptions behind = options;
  if (!flags.cache_index.empty()) {
    DI_TRY(io::RedisAddress address, io::parse_redis_url(flags.cache_index));
    (cache.shared ? behind : options).index = std::make_shared<io::Redis>(std::move(address));
  }
  if (!cache.shared) return open_one(cache.dir, flags.cache_dir, flags.cache_budget, std::move(options));
  options.tier = kv::Tier::kDisk;
  behind.tier = kv::Tier::kShared;
  behind.may_be_away = true;
  DI_TRY(std::unique_ptr<kv::BlockStore> local, open_one(cache.dir, flags.cache_dir, flags.cache_budget, std::move(options)));
  DI_TRY(std::unique_ptr<kv::BlockStore> shared, open_one(*cache.shared, flags.cache_shared, flags.cache_shared_budget, std::move(behind)));
  return std::unique_ptr<kv::BlockStore>(std::make_unique<kv::TieredStore>(std::move(local), std::move(shared)));
}

Result<std::string> weights_digest(const std::string& path, io::Disk& disk, const std::string& dir, int num_threads) {
  DI_TRY(const std::vector<std::string> files, model_files(path));
  std::string identity;
  for (const std::string& file : files) {
    struct stat s {};
    if (::stat(file.c_str(), &s) != 0) return Error{Code::kIo, file + ": cannot be read"};
    DI_TRY(const io::MappedFile mapped, io::MappedFile::open(file));
    identity += fmt::format("{} {} {} {}.{} {}.{} {}\n", s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_ctim.tv_sec, s.st_ctim.tv_nsec,
                            sample_of(mapped.bytes()).hex());
  }
  const std::string kept = dir + "/weights." + blake2b_256(std::as_bytes(std::span(identity))).hex().substr(0, 32);
  if (Result<std::string> known = io::read_file(disk, kept, 64); known && known->size() == 64) return known;
  std::vector<Digest256> digests;
  for (const std::string& file : files) {
    DI_TRY(const io::MappedFile mapped, io::MappedFile::open(file));
    digests.push_back(file_digest(mapped.bytes(), num_threads));
    mapped.release(mapped.bytes());
  }
  const std::string digest = blake2b_256(std::as_bytes(std::span(digests))).hex();
  (void)io::replace_file(disk, kept, digest);  // else it is computed again next time
  return digest;
}

}  // namespace deepinfer::apps
