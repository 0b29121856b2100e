// kv/segment_reader.h: what a segment file holds: from its footer, or, while it is being written or after a crash, by walking the headers of
// its records. Reads go through Disk and are bounded by what the bytes justify. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/disk.h"
#include "kv/segment_format.h"

namespace deepinfer::kv {

struct SegmentContents {
  SegmentHeader header;
  std::vector<FooterEntry> entries;
  bool sealed = false;     // nothing will be added
  uint64_t end_page = 1;   // where the next record would begin
  io::FileStatus status;
};
// Errors: those of the disk; kCorruption, kUnsupported from the header. A damaged footer is none: the records are then walked, and a walk
// ends at the first page that is no record.
Result<SegmentContents> read_segment(io::File& file);
// Goes on where `contents` ends; new entries come at the end. For files that grow.
Result<> read_more(io::File& file, SegmentContents& contents);

// Checks a record as it lies on disk against what the index promised; returns its header and where its rows are. Encrypted rows are still so.
struct RecordView {
  RecordHeader header;
  std::span<std::byte> rows;
};
// Errors: kCorruption (header, key, length or checksum).
Result<RecordView> check_record(std::span<std::byte> record, const BlockKey& key, uint32_t length);

}  // namespace deepinfer::kv
