// LIBS: di_kv
// A segment file from any bytes: header, trailer, footer, a walk over its records, each of which is checked as a read would.
#include "io/memory_disk.h"
#include "kv/segment_reader.h"

using namespace deepinfer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view content(reinterpret_cast<const char*>(data), size);
  io::MemoryDisk disk;
  if (!disk.put("/f.seg", content)) return 0;
  const Result<std::unique_ptr<io::File>> file = disk.open("/f.seg", io::Disk::Mode::kRead);
  const Result<kv::SegmentContents> segment = kv::read_segment(**file);
  const auto check = [&](uint64_t page, uint32_t length, const kv::BlockKey& key) {
    std::vector<std::byte> record(std::min<uint64_t>(kv::record_pages(length) * kv::kPage, size + kv::kPage));
    const Result<size_t> n = (*file)->read(page * kv::kPage, record);
    if (n) (void)kv::check_record(std::span(record).first(*n), key, length).has_value();
  };
  if (segment) {
    for (const kv::FooterEntry& entry : segment->entries) check(entry.page, entry.length, entry.key);
  }
  // Checksums stop most inputs early: records are tried where they lie, too.
  for (uint64_t page = 0; page * kv::kPage < size; ++page) {
    const auto bytes = std::as_bytes(std::span(content)).subspan(page * kv::kPage);
    if (const Result<kv::RecordHeader> header = kv::decode_record_header(bytes); header) check(page, header->length, header->key);
    (void)kv::decode_trailer(bytes, size).has_value();
    (void)kv::decode_segment_header(bytes).has_value();
  }
  return 0;
}
