#include "kv/segment_format.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kv/store_world.h"

namespace deepinfer::kv {
namespace {

SegmentHeader header() {
  return {.model = namespace_of("w", "a", "f", 4), .tenant = tenant_folder({}, "t"), .retention_class = "chat", .bucket_unix_s = 1'795'000'000,
          .expires_unix_s = 1'796'000'000, .writer = 0xa1b2c3d4e5f60718, .sequence = 7, .block_tokens = 4, .cipher_id = {1, 2, 3}};
}

TEST(SegmentFormat, AHeaderComesBack) {
  std::array<std::byte, kSegmentHeaderBytes> bytes;
  encode_segment_header(header(), bytes);
  const auto back = decode_segment_header(bytes);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, header());
}

// Every byte counts: of header, record header, footer and trailer no bit may differ, but the zeros that nothing reads.
TEST(SegmentFormat, NoBitOfAHeaderMayDiffer) {
  std::array<std::byte, kSegmentHeaderBytes> bytes;
  encode_segment_header(header(), bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(decode_segment_header(bytes)) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode_segment_header(std::span(bytes).first(size)));
}

TEST(SegmentFormat, ANewerVersionIsUnsupported) {
  std::array<std::byte, kSegmentHeaderBytes> bytes;
  encode_segment_header(header(), bytes);
  bytes[4] = std::byte{3};
  EXPECT_EQ(decode_segment_header(bytes).error().code, Code::kUnsupported);
}

TEST(SegmentFormat, ARecordIsItsKeyAndItsRows) {
  std::string rows = "some rows";
  RecordHeader record{.key = chain_of(1, 1)[0], .length = static_cast<uint32_t>(rows.size()), .num_tokens = 4, .written_unix_s = 5};
  std::array<std::byte, kRecordHeaderBytes> bytes;
  encode_record(record, std::as_bytes(std::span(rows)), bytes);
  const auto back = decode_record_header(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->key, record.key);
  EXPECT_EQ(back->length, rows.size());
  EXPECT_TRUE(rows_match(*back, bytes, std::as_bytes(std::span(rows))));
  for (char& c : rows) {
    c ^= 4;
    EXPECT_FALSE(rows_match(*back, bytes, std::as_bytes(std::span(rows))));
    c ^= 4;
  }
  EXPECT_FALSE(rows_match(*back, bytes, std::as_bytes(std::span(rows).first(8))));
  for (size_t bit = 0; bit < 8 * 120; ++bit) {  // the last 8 bytes are zeros that nothing reads
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(decode_record_header(bytes)) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
}

TEST(SegmentFormat, AFooterComesBackOrNothing) {
  std::vector<FooterEntry> entries;
  uint32_t page = 1;
  for (const BlockKey& key : chain_of(3, 150)) {
    entries.push_back({.key = key, .page = page, .length = 5000, .written_after_s = page * 7});
    page += 2;
  }
  std::vector<std::byte> bytes = encode_footer(entries, page);
  ASSERT_EQ(bytes.size() % kPage, 0u);
  const uint64_t file_size = page * kPage + bytes.size();
  const auto read = [&](uint64_t size) -> Result<std::vector<FooterEntry>> {
    DI_TRY(const SegmentTrailer trailer, decode_trailer(std::span<const std::byte>(bytes).last(kPage), size));
    return decode_footer(trailer, std::span<const std::byte>(bytes).first(trailer.num_records * kFooterEntryBytes));
  };
  const auto back = read(file_size);
  ASSERT_TRUE(back) << back.error().message;
  ASSERT_EQ(back->size(), 150u);
  EXPECT_EQ((*back)[149].key, entries[149].key);
  EXPECT_EQ((*back)[149].page, entries[149].page);
  EXPECT_EQ((*back)[149].written_after_s, entries[149].written_after_s);
  EXPECT_FALSE(read(file_size + kPage));
  EXPECT_FALSE(read(file_size - kPage));
  EXPECT_FALSE(read(2 * kPage));
  const size_t trailer = bytes.size() - kPage;
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (at >= 150 * kFooterEntryBytes && (at < trailer || at >= trailer + 56)) continue;  // padding
    bytes[at] ^= std::byte{64};
    EXPECT_FALSE(read(file_size)) << at;
    bytes[at] ^= std::byte{64};
  }
}

TEST(SegmentFormat, Names) {
  const std::string name = segment_name(header());
  EXPECT_EQ(name, "chat.1795000000.a1b2c3d4e5f60718.000007.seg");
  EXPECT_TRUE(is_segment_name(name));
  EXPECT_EQ(writer_in_name(name), header().writer);
  for (const char* other : {"", ".seg", "a.seg", "secret", "chat.1.2.3.seg.new", "chat.1.zz.3.seg"}) EXPECT_EQ(writer_in_name(other), 0u) << other;
  EXPECT_EQ(folder_name(header().model).size(), 32u);
  EXPECT_NE(tenant_folder({}, "a"), tenant_folder({}, "b"));
  EXPECT_NE(tenant_folder({}, "a"), tenant_folder(header().model, "a")) << "a name says nothing without the secret";
}

}  // namespace
}  // namespace deepinfer::kv
