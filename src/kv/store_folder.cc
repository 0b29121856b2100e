#include "kv/store_folder.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <thread>

#include "kv/block_key.h"

namespace deepinfer::kv {
namespace {

constexpr const char* kMarkerName = "/deepinfer-cache";
constexpr const char* kSecretName = "/secret";
constexpr const char* kClockName = "/clock";
constexpr int kBeginTries = 200;  // 10 ms apart
constexpr std::chrono::seconds kSettle{1};

std::string marker() { return fmt::format("deepinfer cache 1\nkeys {}\n", kKeyVector); }

Result<Digest256> read_secret(io::Disk& disk, const std::string& dir) {
  DI_TRY(const std::string text, io::read_file(disk, dir + kSecretName, 4096));
  Digest256 secret;
  if (text.size() != secret.bytes.size()) return Error{Code::kCorruption, dir + kSecretName + ": not 32 bytes; remove the cache directory to begin anew"};
  std::memcpy(secret.bytes.data(), text.data(), text.size());
  return secret;
}

// No mark is as good as a damaged one: time then begins at the wall clock.
int64_t read_mark(io::Disk& disk, const std::string& dir) {
  const Result<std::string> text = io::read_file(disk, dir + kClockName, 64);
  int64_t mark_s = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), mark_s).ec != std::errc() || mark_s < 0) return 0;
  return mark_s;
}

Result<> check_marker(io::Disk& disk, const std::string& dir) {
  DI_TRY(const std::string text, io::read_file(disk, dir + kMarkerName, 4096));
  if (text == marker()) return {};
  return Error{Code::kUnsupported, dir + ": written by a deepinfer whose block keys or layout differ; give --cache-dir another directory"};
}

}  // namespace

Result<StoreFolder> read_store_folder(io::Disk& disk, const std::string& dir) {
  if (Result<> marked = check_marker(disk, dir); !marked) {
    if (marked.error().code != Code::kNotFound) return marked.error();
    return Error{Code::kNotFound, dir + ": not a cache directory"};
  }
  StoreFolder folder;
  DI_TRY(folder.secret, read_secret(disk, dir));
  folder.mark_s = read_mark(disk, dir);
  return folder;
}

namespace {

// Made under another name and linked by rename only if nobody was faster.
Result<> make_secret(io::Disk& disk, const std::string& dir, const Digest256& secret) {
  DI_TRY(disk.make_folder(writers_folder(dir)));
  if (disk.status(dir + kSecretName)) return {};
  return io::replace_file(disk, dir + kSecretName, std::string_view(reinterpret_cast<const char*>(secret.bytes.data()), secret.bytes.size()));
}

}  // namespace

Result<> restore_store_folder(io::Disk& disk, const std::string& dir, const Digest256& secret) {
  DI_TRY(make_secret(disk, dir, secret));  // first: a marked folder always has one
  if (const Result<io::FileStatus> there = disk.status(dir + kMarkerName); !there) {
    DI_TRY(io::replace_file(disk, dir + kMarkerName, marker()));
  }
  return disk.sync_folder(dir);
}

Result<StoreFolder> open_store_folder(io::Disk& disk, const std::string& dir, const Digest256& secret) {
  DI_TRY(disk.make_folder(dir));
  DI_TRY(const std::vector<std::string> names, disk.list(dir));
  const bool marked = std::find(names.begin(), names.end(), std::string(kMarkerName).substr(1)) != names.end();
  const bool begun = marked || std::find(names.begin(), names.end(), "writers") != names.end();
  if (!names.empty() && !begun) return Error{Code::kUnsupported, dir + ": is not empty and not a cache directory; give --cache-dir a directory of its own"};
  if (!marked) {
    // Two processes may begin at once: one at a time, and the second finds the first's secret.
    DI_TRY(disk.make_folder(writers_folder(dir)));
    const std::string path = dir + "/writers/begin.lock";
    Result<std::unique_ptr<io::File>> lock = disk.lock(path);
    for (int i = 0; i < kBeginTries && !lock && lock.error().code == Code::kUnavailable; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      lock = disk.lock(path);
    }
    if (!lock && lock.error().code == Code::kUnavailable) return Error{Code::kUnavailable, dir + ": another process is making this cache directory; try again"};
    if (!lock) {
      // There are no locks: whoever else began just now has written its secret by then, the last one counts, and nobody has used another.
      DI_TRY(make_secret(disk, dir, secret));
      std::this_thread::sleep_for(kSettle);
    }
    DI_TRY(restore_store_folder(disk, dir, secret));
  }
  return read_store_folder(disk, dir);
}

Result<StoreFolders> open_store_folders(io::Disk& local, const std::string& local_dir, io::Disk& shared, const std::string& shared_dir) {
  const Result<StoreFolder> known = read_store_folder(local, local_dir);
  StoreFolders out;
  Result<StoreFolder> opened = open_store_folder(shared, shared_dir, known ? known->secret : random_256());
  if (!opened) {
    const bool is_there = opened.error().code == Code::kUnsupported || opened.error().code == Code::kCorruption;
    if (is_there || !known) return opened.error();
    out.away = opened.error();
    opened = StoreFolder{.secret = known->secret};
  }
  out.shared = *opened;
  DI_TRY(out.local, open_store_folder(local, local_dir, out.shared.secret));
  if (out.local.secret == out.shared.secret) return out;
  return Error{Code::kUnsupported, local_dir + ": its blocks were not made to go with those of " + shared_dir + "; give --cache-dir another directory, or remove this one"};
}

bool SegmentPath::holds(const SegmentHeader& header) const { return folder_name(header.model) == model && folder_name(header.tenant) == tenant; }

Result<> write_mark(io::Disk& disk, const std::string& dir, int64_t mark_s) { return io::replace_file(disk, dir + kClockName, std::to_string(mark_s)); }

std::string writers_folder(const std::string& dir) { return dir + "/writers"; }

std::string quarantine_folder(const std::string& dir) { return dir + "/quarantine"; }

std::string writer_lock_path(const std::string& dir, uint64_t writer) { return fmt::format("{}/writers/{:016x}.lock", dir, writer); }

Result<std::vector<SegmentPath>> list_segments(io::Disk& disk, const std::string& dir, std::vector<std::string>* folders) {
  // One that vanished is empty; one that cannot be looked into is an error, or its files would seem to be gone.
  const auto look_into = [&](const std::string& folder) -> Result<std::vector<std::string>> {
    Result<std::vector<std::string>> names = disk.list(folder);
    if (!names && names.error().code == Code::kNotFound) return std::vector<std::string>();
    if (names && folders != nullptr) folders->push_back(folder);
    return names;
  };
  DI_TRY(const std::vector<std::string> models, disk.list(dir));
  std::vector<SegmentPath> out;
  for (const std::string& model : models) {
    if (!is_folder_name(model)) continue;
    DI_TRY(const std::vector<std::string> tenants, look_into(dir + "/" + model));
    for (const std::string& tenant : tenants) {
      if (!is_folder_name(tenant)) continue;
      DI_TRY(const std::vector<std::string> names, look_into(dir + "/" + model + "/" + tenant));
      for (const std::string& name : names) {
        if (is_segment_name(name)) out.push_back({model, tenant, name});
      }
    }
  }
  return out;
}

}  // namespace deepinfer::kv
