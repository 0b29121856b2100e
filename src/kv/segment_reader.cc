#include "kv/segment_reader.h"

#include <algorithm>
#include <iterator>

namespace deepinfer::kv {
namespace {

// Where footer and trailer of a sealed file say that its records are; an empty result: not sealed, or damaged.
Result<std::vector<FooterEntry>> read_footer(io::File& file, uint64_t size, uint64_t& footer_page) {
  std::vector<std::byte> page(kPage);
  if (size < 2 * kPage || size % kPage != 0) return Error{Code::kCorruption, "segment: no trailer"};
  DI_TRY(const size_t n, file.read(size - kPage, page));
  DI_TRY(const SegmentTrailer trailer, decode_trailer(std::span(page).first(n), size));
  std::vector<std::byte> footer(size_t{trailer.num_records} * kFooterEntryBytes);  // decode_trailer has compared it with the file's size
  DI_TRY(const size_t length, file.read(trailer.footer_page * kPage, footer));
  footer_page = trailer.footer_page;
  return decode_footer(trailer, std::span(footer).first(length));
}

}  // namespace

Result<SegmentContents> read_segment(io::File& file) {
  SegmentContents out;
  std::array<std::byte, kSegmentHeaderBytes> head;
  DI_TRY(const size_t n, file.read(0, head));
  DI_TRY(out.header, decode_segment_header(std::span(head).first(n)));
  DI_TRY(read_more(file, out));
  return out;
}

Result<> read_more(io::File& file, SegmentContents& contents) {
  DI_TRY(contents.status, file.status());
  uint64_t footer_page = 0;
  if (const Result<std::vector<FooterEntry>> footer = read_footer(file, contents.status.size, footer_page); footer) {
    std::copy_if(footer->begin(), footer->end(), std::back_inserter(contents.entries), [&](const FooterEntry& e) { return e.page >= contents.end_page; });
    contents.end_page = footer_page;
    contents.sealed = true;
    return {};
  }
  std::array<std::byte, kRecordHeaderBytes> head;
  // A record is whole once the file reaches past its rows; whether the bytes arrived is what its checksum says when it is read.
  while (contents.end_page * kPage + kRecordHeaderBytes <= contents.status.size && contents.end_page < UINT32_MAX) {
    DI_TRY(const size_t n, file.read(contents.end_page * kPage, head));
    const Result<RecordHeader> header = decode_record_header(std::span(head).first(n));
    if (!header || contents.end_page * kPage + kRecordHeaderBytes + header->length > contents.status.size) break;
    contents.entries.push_back({.key = header->key, .page = static_cast<uint32_t>(contents.end_page), .length = header->length,
                                .written_after_s = written_after(contents.header, header->written_unix_s)});
    contents.end_page += record_pages(header->length);
  }
  return {};
}

Result<RecordView> check_record(std::span<std::byte> record, const BlockKey& key, uint32_t length) {
  RecordView view;
  DI_TRY(view.header, decode_record_header(record));
  if (view.header.key != key) return Error{Code::kCorruption, "block record: another block's key"};
  if (view.header.length != length || record.size() < kRecordHeaderBytes + size_t{length}) return Error{Code::kCorruption, "block record: length"};
  view.rows = record.subspan(kRecordHeaderBytes, length);
  if (!rows_match(view.header, record, view.rows)) return Error{Code::kCorruption, "block record: checksum"};
  return view;
}

}  // namespace deepinfer::kv
