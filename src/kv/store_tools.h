// kv/store_tools.h: a cache directory looked at, checked and cleaned from outside, also while servers use it: they notice files that are gone
// and treat what they held as misses. One thread; all I/O through Disk.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/disk.h"
#include "kv/row_cipher.h"
#include "kv/segment_format.h"
#include "kv/store_folder.h"

namespace deepinfer::kv {

// Said along the way: so many of so many bytes are done.
using Progress = std::function<void(uint64_t done, uint64_t total)>;

struct StoreGroup {  // of one model, tenant and retention class
  uint64_t num_segments = 0, num_blocks = 0, bytes = 0;
  int64_t oldest_s = INT64_MAX, newest_s = 0;  // when its blocks were written; meaningless without blocks
};
struct StoreReport {
  std::map<std::vector<std::string>, StoreGroup> groups;  // by model folder, tenant folder, class
  StoreGroup total;
  uint64_t num_encrypted = 0, num_unsealed = 0, num_expired = 0;  // segments
  uint64_t num_rejected = 0, rejected_bytes = 0;                  // damaged, filed wrong, or of a newer version
  // Bytes by how long ago a segment was last used: under an hour, 6 hours, a day, 3 days, a week, longer.
  static constexpr int64_t kAges[] = {3600, 6 * 3600, 86'400, 3 * 86'400, 7 * 86'400};
  uint64_t bytes_by_last_use[std::size(kAges) + 1] = {};
};
Result<StoreReport> report_store(io::Disk& disk, const std::string& dir, int64_t now_s, const Progress& progress);

struct VerifyReport {
  uint64_t num_segments = 0, num_skipped = 0, num_blocks = 0, bytes = 0;  // skipped: found good by an earlier run that was cut short
  uint64_t num_bad_blocks = 0, num_unopened = 0;  // unopened: encrypted, and no or another key was given; checksums still compared
  std::vector<std::string> quarantined;           // files, as they were called
  std::vector<std::string> unreadable;            // left where they are: what the medium said of each
};
// Reads every record and compares checksum and key; a segment with anything bad is moved to DIR/quarantine, where nobody looks. Where a run was
// cut short the next one goes on; a run that comes to its end forgets where it was.
Result<VerifyReport> verify_store(io::Disk& disk, const std::string& dir, const std::optional<RowCipher>& cipher, const Progress& progress);

struct PurgeFilter {  // all that are set must hold
  std::optional<Digest256> tenant;    // tenant_folder()
  std::string retention_class;
  std::optional<int64_t> before_s;    // neither written nor used since then
};
struct PurgeReport {
  uint64_t num_segments = 0, bytes = 0;
};
// What lies in quarantine goes by the same filter.
Result<PurgeReport> purge_store(io::Disk& disk, const std::string& dir, const PurgeFilter& filter, const Progress& progress);

}  // namespace deepinfer::kv
