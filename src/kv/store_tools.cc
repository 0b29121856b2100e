#include "kv/store_tools.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <memory>
#include <set>

#include "kv/segment_reader.h"

namespace deepinfer::kv {
namespace {

constexpr const char* kVerified = "/verified";
constexpr size_t kMaxVerified = size_t{64} << 20;  // of the list of verified files
constexpr uint64_t kRemember = uint64_t{1} << 30;  // bytes between two notes of how far a run came

struct Found {
  SegmentPath where;
  std::string path;
  io::FileStatus status;
};

Result<std::vector<Found>> find_segments(io::Disk& disk, const std::string& dir, uint64_t& total) {
  DI_TRY(read_store_folder(disk, dir));
  DI_TRY(const std::vector<SegmentPath> segments, list_segments(disk, dir));
  std::vector<Found> out;
  total = 0;
  for (const SegmentPath& where : segments) {
    std::string path = where.path(dir);
    const Result<io::FileStatus> status = disk.status(path);
    if (!status) continue;  // gone meanwhile
    total += status->allocated_bytes;
    out.push_back({where, std::move(path), *status});
  }
  return out;
}

// Errors also where the file does not belong where it lies.
Result<SegmentContents> read_found(io::Disk& disk, const Found& found) {
  DI_TRY(const std::unique_ptr<io::File> file, disk.open(found.path, io::Disk::Mode::kRead));
  DI_TRY(SegmentContents contents, read_segment(*file));
  if (folder_name(contents.header.model) != found.where.model || folder_name(contents.header.tenant) != found.where.tenant) {
    return Error{Code::kCorruption, found.path + ": another model's or tenant's segment"};
  }
  return contents;
}

void add(StoreGroup& group, const SegmentContents& contents) {
  group.num_segments += 1;
  group.num_blocks += contents.entries.size();
  group.bytes += contents.status.allocated_bytes;
  for (const FooterEntry& entry : contents.entries) {
    const int64_t written_s = contents.header.bucket_unix_s + entry.written_after_s;
    group.oldest_s = std::min(group.oldest_s, written_s);
    group.newest_s = std::max(group.newest_s, written_s);
  }
}

// One that was written to after it was verified is another file.
std::string identity_of(const Found& found) { return fmt::format("{} {}", found.path, found.status.size); }

struct Checked {
  uint64_t num_blocks = 0, num_bad = 0;
  bool unopened = false;
};

Result<Checked> check_segment(io::Disk& disk, const Found& found, const std::optional<RowCipher>& cipher) {
  DI_TRY(const SegmentContents contents, read_found(disk, found));
  DI_TRY(const std::unique_ptr<io::File> file, disk.open(found.path, io::Disk::Mode::kRead));
  const bool encrypted = contents.header.cipher_id != std::array<uint8_t, 16>{};
  const bool opens = encrypted && cipher && cipher->id() == contents.header.cipher_id;
  Checked out{.unopened = encrypted && !opens};
  std::vector<std::byte> record;
  for (const FooterEntry& entry : contents.entries) {
    record.resize(static_cast<size_t>(record_pages(entry.length) * kPage));
    DI_TRY(const size_t n, file->read(entry.page * kPage, record));
    const Result<RecordView> view = check_record(std::span(record).first(n), entry.key, entry.length);
    const bool good = view && view->header.encrypted == encrypted && (!opens || cipher->decrypt(view->header, view->rows));
    out.num_blocks += 1;
    out.num_bad += !good;
  }
  return out;
}

// Its name there says where it lay.
Result<> quarantine(io::Disk& disk, const std::string& dir, const Found& found) {
  DI_TRY(disk.make_folder(quarantine_folder(dir)));
  return disk.rename(found.path, quarantine_folder(dir) + "/" + found.where.model + "." + found.where.tenant + "." + found.where.name);
}

std::vector<Found> find_quarantined(io::Disk& disk, const std::string& dir, uint64_t& total) {
  std::vector<Found> out;
  const std::string folder = quarantine_folder(dir);
  const Result<std::vector<std::string>> names = disk.list(folder);
  for (const std::string& name : names ? *names : std::vector<std::string>()) {
    const size_t first = name.find('.'), second = first == std::string::npos ? first : name.find('.', first + 1);
    const Result<io::FileStatus> status = disk.status(folder + "/" + name);
    if (second == std::string::npos || !status) continue;
    total += status->allocated_bytes;
    out.push_back({{.model = name.substr(0, first), .tenant = name.substr(first + 1, second - first - 1), .name = name.substr(second + 1)}, folder + "/" + name, *status});
  }
  return out;
}

std::set<std::string> read_verified(io::Disk& disk, const std::string& dir) {
  std::set<std::string> out;
  const Result<std::string> text = io::read_file(disk, dir + kVerified, kMaxVerified);
  if (!text) return out;
  for (size_t begin = 0, end; begin < text->size(); begin = end + 1) {
    end = std::min(text->find('\n', begin), text->size());
    out.insert(text->substr(begin, end - begin));
  }
  return out;
}

}  // namespace

Result<StoreReport> report_store(io::Disk& disk, const std::string& dir, int64_t now_s, const Progress& progress) {
  StoreReport report;
  uint64_t total, done = 0;
  DI_TRY(const std::vector<Found> found, find_segments(disk, dir, total));
  for (const Found& one : found) {
    const Result<SegmentContents> contents = read_found(disk, one);
    done += one.status.allocated_bytes;
    if (progress) progress(done, total);
    if (!contents) {
      if (contents.error().code == Code::kNotFound) continue;
      report.num_rejected += 1;
      report.rejected_bytes += one.status.allocated_bytes;
      continue;
    }
    add(report.groups[{one.where.model, one.where.tenant, contents->header.retention_class}], *contents);
    add(report.total, *contents);
    report.num_encrypted += contents->header.cipher_id != std::array<uint8_t, 16>{};
    report.num_unsealed += !contents->sealed;
    report.num_expired += contents->header.expires_unix_s <= now_s;
    const auto* const age = std::find_if(std::begin(StoreReport::kAges), std::end(StoreReport::kAges),
                                         [&](int64_t limit) { return now_s - one.status.changed_unix_s < limit; });
    report.bytes_by_last_use[age - std::begin(StoreReport::kAges)] += one.status.allocated_bytes;
  }
  return report;
}

Result<VerifyReport> verify_store(io::Disk& disk, const std::string& dir, const std::optional<RowCipher>& cipher, const Progress& progress) {
  VerifyReport report;
  uint64_t total, done = 0, remembered = 0;
  DI_TRY(const std::vector<Found> found, find_segments(disk, dir, total));
  const std::set<std::string> before = read_verified(disk, dir);
  std::string verified;
  for (const Found& one : found) {
    done += one.status.allocated_bytes;
    const std::string identity = identity_of(one);
    if (before.contains(identity)) {
      report.num_skipped += 1;
      verified += identity + "\n";
      continue;
    }
    const Result<Checked> checked = check_segment(disk, one, cipher);
    if (progress) progress(done, total);
    if (!checked && (checked.error().code == Code::kNotFound || checked.error().code == Code::kUnsupported)) continue;  // gone, or a newer program's
    if (!checked && checked.error().code != Code::kCorruption) {  // nothing is known of it: a network may be down, or its permissions wrong
      report.unreadable.push_back(checked.error().message);
      continue;
    }
    report.num_segments += 1;
    report.bytes += one.status.allocated_bytes;
    if (checked) {
      report.num_blocks += checked->num_blocks;
      report.num_bad_blocks += checked->num_bad;
      report.num_unopened += checked->unopened;
    }
    if (!checked || checked->num_bad > 0) {
      const Result<> moved = quarantine(disk, dir, one);
      if (!moved && moved.error().code != Code::kNotFound) return moved.error();
      if (moved) report.quarantined.push_back(one.path);
      continue;
    }
    verified += identity + "\n";
    if (done - remembered < kRemember) continue;
    remembered = done;
    DI_TRY(io::replace_file(disk, dir + kVerified, verified));
  }
  if (Result<> removed = disk.remove(dir + kVerified); !removed && removed.error().code != Code::kNotFound) return removed.error();
  return report;
}

// By its place and name, and its time of change, which is that of the last use: of a damaged file these are all there is.
Result<PurgeReport> purge_store(io::Disk& disk, const std::string& dir, const PurgeFilter& filter, const Progress& progress) {
  PurgeReport report;
  uint64_t total, done = 0;
  DI_TRY(std::vector<Found> found, find_segments(disk, dir, total));
  std::ranges::move(find_quarantined(disk, dir, total), std::back_inserter(found));
  for (const Found& one : found) {
    done += one.status.allocated_bytes;
    if (progress) progress(done, total);
    if (filter.tenant && one.where.tenant != folder_name(*filter.tenant)) continue;
    if (!filter.retention_class.empty() && !one.where.name.starts_with(filter.retention_class + ".")) continue;
    if (filter.before_s && one.status.changed_unix_s >= *filter.before_s) continue;
    if (Result<> removed = disk.remove(one.path); !removed) {
      if (removed.error().code == Code::kNotFound) continue;
      return removed.error();
    }
    (void)disk.remove(one.path.substr(0, one.path.find_last_of('/')));  // the folder, if that was its last file
    report.num_segments += 1;
    report.bytes += one.status.allocated_bytes;
  }
  return report;
}

}  // namespace deepinfer::kv
