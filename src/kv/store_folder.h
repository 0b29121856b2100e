// kv/store_folder.h: a cache directory, apart from its segments: what marks it as one, the secret that tenants' secrets are made from, and
// the mark of time. docs/formats/segment.md has the layout.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "io/disk.h"
#include "kv/segment_format.h"

namespace deepinfer::kv {

struct StoreFolder {
  Digest256 secret;    // drawn by the first process that used the folder; all that share it share blocks
  int64_t mark_s = 0;  // StoreClock's; 0: none
};

// Makes the folder if it is absent. Errors: kUnsupported (the folder belongs to something else, or its keys are computed otherwise than
// this build's), kCorruption (a damaged secret), those of the disk.
// secret: of one that is made; another's is kept.
Result<StoreFolder> open_store_folder(io::Disk& disk, const std::string& dir, const Digest256& secret = random_256());
// Two folders whose blocks have the same keys: the secret is the shared one's, or the local one's where that was first. A shared folder that
// cannot be reached is no error if the local one is known: `away` says why, and the secret is taken to be the same. Errors: kUnsupported (the
// two have different secrets), those of either.
struct StoreFolders {
  StoreFolder local, shared;
  std::optional<Error> away;
};
Result<StoreFolders> open_store_folders(io::Disk& local, const std::string& local_dir, io::Disk& shared, const std::string& shared_dir);
// The same as open_store_folder for one that must be there: kNotFound if it is no cache directory. Writes nothing.
Result<StoreFolder> read_store_folder(io::Disk& disk, const std::string& dir);
// Writes again what is missing, with this secret: after somebody removed the folder under a running server.
Result<> restore_store_folder(io::Disk& disk, const std::string& dir, const Digest256& secret);
Result<> write_mark(io::Disk& disk, const std::string& dir, int64_t mark_s);

std::string writers_folder(const std::string& dir);
std::string quarantine_folder(const std::string& dir);  // of damaged segments, where nobody looks
std::string writer_lock_path(const std::string& dir, uint64_t writer);

// Every segment file of the directory, all models and tenants: model folder, tenant folder, file name.
struct SegmentPath {
  std::string model, tenant, name;
  std::string path(const std::string& dir) const { return dir + "/" + model + "/" + tenant + "/" + name; }
  bool holds(const SegmentHeader& header) const;  // whether a file with this header belongs into these folders
};
// A folder that vanishes meanwhile is empty. folders: gets the models' and tenants', whole paths. Errors: those of listing.
Result<std::vector<SegmentPath>> list_segments(io::Disk& disk, const std::string& dir, std::vector<std::string>* folders = nullptr);

}  // namespace deepinfer::kv
