// kv/segment_format.h: the bytes of a segment file, written and read in one place. docs/formats/segment.md is the description.
//   page 0           SegmentHeader: whose blocks these are and until when they count
//   pages 1…         records, each on a page of its own: RecordHeader, then `length` bytes of rows, then zeros to the next page
//   then, if sealed  the footer: an entry a record; zeros to the next page; the trailer, which is the file's last page
// Decoders take untrusted bytes, allocate nothing that these do not justify, and never read outside their span. Errors: kCorruption (bytes
// that break the format), kUnsupported (a newer version). Pure functions, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/disk.h"
#include "kv/block_key.h"

namespace deepinfer::kv {

constexpr uint64_t kPage = io::kDiskPage;
constexpr uint64_t to_pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage; }
constexpr uint32_t kMaxRowBytes = 64u << 20;  // bounds what one damaged header can make us read
constexpr size_t kMaxClassName = 15;
bool is_class_name(std::string_view name);  // 1 to kMaxClassName of a-z, 0-9, _ and -

struct SegmentHeader {
  Digest256 model;   // namespace_of(): weights, computation, format; blocks of other models are nobody's business here
  Digest256 tenant;  // tenant_folder()
  std::string retention_class;   // is_class_name()
  int64_t bucket_unix_s = 0;     // blocks were written in the time bucket that begins here
  int64_t expires_unix_s = 0;    // from here on none of them is served
  uint64_t writer = 0;           // who wrote it; the name says so too
  uint32_t sequence = 0;         // of the writer's segments
  uint32_t block_tokens = 0;
  std::array<uint8_t, 16> cipher_id{};  // of the key that rows are encrypted with; zeros: plain
  bool operator==(const SegmentHeader&) const = default;
};
constexpr size_t kSegmentHeaderBytes = 256;
void encode_segment_header(const SegmentHeader& header, std::span<std::byte, kSegmentHeaderBytes> out);
Result<SegmentHeader> decode_segment_header(std::span<const std::byte> bytes);

struct RecordHeader {
  BlockKey key;
  uint32_t length = 0;  // of the rows as stored, 1..kMaxRowBytes
  uint32_t num_tokens = 0;
  int64_t written_unix_s = 0;
  bool encrypted = false;
  std::array<uint8_t, 24> nonce{};  // of an encrypted record
  std::array<uint8_t, 16> tag{};
  Check128 check;  // XXH3-128 of the header's first kCheckedBytes and the rows as stored
};
constexpr size_t kRecordHeaderBytes = 128;
constexpr uint64_t record_pages(uint64_t length) { return to_pages(kRecordHeaderBytes + length); }
// Sets header.check for these rows and writes the header.
void encode_record(RecordHeader& header, std::span<const std::byte> rows, std::span<std::byte, kRecordHeaderBytes> out);
// The header alone; its own checksum is compared, so that a scan may trust key and length without reading the rows.
Result<RecordHeader> decode_record_header(std::span<const std::byte> bytes);
// Whether the rows are the ones that were written with this header. `bytes`: the header's, as decoded.
bool rows_match(const RecordHeader& header, std::span<const std::byte> bytes, std::span<const std::byte> rows);

struct FooterEntry {
  BlockKey key;
  uint32_t page = 0;             // where the record begins
  uint32_t length = 0;           // of its rows
  uint32_t written_after_s = 0;  // seconds from the segment's bucket to RecordHeader::written_unix_s
};
constexpr size_t kFooterEntryBytes = 44;
uint32_t written_after(const SegmentHeader& segment, int64_t written_unix_s);

struct SegmentTrailer {
  uint32_t num_records = 0;
  uint64_t footer_page = 0;
  Check128 footer_check;
};
constexpr size_t kTrailerBytes = 64;
// Footer and trailer as they follow the last record, in whole pages.
std::vector<std::byte> encode_footer(std::span<const FooterEntry> entries, uint64_t footer_page);
// The file's last page. file_size bounds what it may say.
Result<SegmentTrailer> decode_trailer(std::span<const std::byte> page, uint64_t file_size);
// footer: num_records * kFooterEntryBytes bytes from footer_page on. Each entry lies before the footer, or all are refused.
Result<std::vector<FooterEntry>> decode_footer(const SegmentTrailer& trailer, std::span<const std::byte> footer);

// "chat.1795987200.00000000a1b2c3d4.000007.seg", and back. The name is a hint: the header decides.
std::string segment_name(const SegmentHeader& header);
bool is_segment_name(std::string_view name);
uint64_t writer_in_name(std::string_view name);  // 0: none
// Until when a segment's blocks are served. A file from the future was written under a wrong clock: it gets its own span from now on, not more.
int64_t expiry_of(const SegmentHeader& header, int64_t now_s);

// Names of folders: the model's digest, and the tenant's under the store's secret, so that a name says nothing about a tenant.
Digest256 namespace_of(std::string_view weights, std::string_view architecture, std::string_view format, int32_t block_tokens);
Digest256 tenant_folder(const Digest256& master, std::string_view tenant);
std::string folder_name(const Digest256& digest);  // 32 hex digits
bool is_folder_name(std::string_view name);

}  // namespace deepinfer::kv
