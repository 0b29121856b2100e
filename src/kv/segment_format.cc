#include "kv/segment_format.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fmt/format.h>

#include "base/bytes.h"
#include "base/check.h"

namespace deepinfer::kv {
namespace {

constexpr uint32_t kSegmentMagic = 0x47534944;  // "DISG"
constexpr uint32_t kRecordMagic = 0x52424944;   // "DIBR"
constexpr uint32_t kTrailerMagic = 0x45534944;  // "DISE"
constexpr uint16_t kVersion = 2;
constexpr uint16_t kEncrypted = 1;
constexpr size_t kCheckedBytes = 96;  // of a record's header: what comes before its checksums
constexpr std::string_view kSuffix = ".seg";

Error corrupt(const char* what) { return {Code::kCorruption, what}; }

// Writes numbers and bytes one after the other into a fixed span.
class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}
  template <class T>
  void number(T value) {
    bytes(std::as_bytes(std::span(&value, 1)));
  }
  void bytes(std::span<const std::byte> source) {
    CHECK(source.size() <= out_.size() - at_);
    std::memcpy(out_.data() + at_, source.data(), source.size());
    at_ += source.size();
  }
  template <size_t N>
  void array(const std::array<uint8_t, N>& source) {
    bytes(std::as_bytes(std::span(source)));
  }
  void zeros_to(size_t end) {
    CHECK(end >= at_);
    std::memset(out_.data() + at_, 0, end - at_);
    at_ = end;
  }
  std::span<const std::byte> written() const { return out_.first(at_); }

 private:
  std::span<std::byte> out_;
  size_t at_ = 0;
};

template <size_t N>
std::array<uint8_t, N> take_array(ByteReader& in) {
  std::array<uint8_t, N> out{};
  const auto bytes = in.take(N);
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), N);
  return out;
}

Digest256 take_digest(ByteReader& in) { return {take_array<32>(in)}; }

// Magic and version, which every piece begins with.
Result<> check_start(ByteReader& in, uint32_t magic, const char* wrong) {
  if (in.u32() != magic) return corrupt(wrong);
  const uint16_t version = in.u16();
  if (!in.ok() || version == 0) return corrupt(wrong);
  if (version > kVersion) return Error{Code::kUnsupported, fmt::format("segment of format version {}; this program knows {}", version, kVersion)};
  return {};
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 19 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_hex_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

}  // namespace

bool is_class_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxClassName && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

void encode_segment_header(const SegmentHeader& header, std::span<std::byte, kSegmentHeaderBytes> out) {
  CHECK(is_class_name(header.retention_class));
  std::array<uint8_t, kMaxClassName + 1> name{};
  std::copy(header.retention_class.begin(), header.retention_class.end(), name.begin());
  Writer w(out);
  w.number(kSegmentMagic);
  w.number(kVersion);
  w.number(uint16_t{0});
  w.array(header.model.bytes);
  w.array(header.tenant.bytes);
  w.array(name);
  w.number(header.bucket_unix_s);
  w.number(header.expires_unix_s);
  w.number(header.writer);
  w.number(header.sequence);
  w.number(header.block_tokens);
  w.array(header.cipher_id);
  w.zeros_to(kSegmentHeaderBytes - 8);
  w.number(xxh3_64(w.written()));
}

Result<SegmentHeader> decode_segment_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kSegmentHeaderBytes) return corrupt("segment header: too short");
  bytes = bytes.first(kSegmentHeaderBytes);
  ByteReader in(bytes);
  DI_TRY(check_start(in, kSegmentMagic, "segment header: magic"));
  in.u16();
  SegmentHeader h;
  h.model = take_digest(in);
  h.tenant = take_digest(in);
  const std::string_view name = in.text(kMaxClassName + 1);
  h.retention_class = name.substr(0, name.find('\0'));
  h.bucket_unix_s = in.number<int64_t>();
  h.expires_unix_s = in.number<int64_t>();
  h.writer = in.u64();
  h.sequence = in.u32();
  h.block_tokens = in.u32();
  h.cipher_id = take_array<16>(in);
  uint64_t check;
  std::memcpy(&check, bytes.data() + kSegmentHeaderBytes - 8, 8);
  if (check != xxh3_64(bytes.first(kSegmentHeaderBytes - 8))) return corrupt("segment header: checksum");
  if (!is_class_name(h.retention_class) || h.expires_unix_s < h.bucket_unix_s || h.bucket_unix_s < 0) return corrupt("segment header: range");
  return h;
}

void encode_record(RecordHeader& header, std::span<const std::byte> rows, std::span<std::byte, kRecordHeaderBytes> out) {
  CHECK(rows.size() == header.length && header.length > 0 && header.length <= kMaxRowBytes);
  Writer w(out);
  w.number(kRecordMagic);
  w.number(kVersion);
  w.number(header.encrypted ? kEncrypted : uint16_t{0});
  w.array(header.key.bytes);
  w.number(header.length);
  w.number(header.num_tokens);
  w.array(header.nonce);
  w.array(header.tag);
  w.number(header.written_unix_s);
  header.check = xxh3_128({w.written(), rows});
  w.number(header.check.low);
  w.number(header.check.high);
  w.number(xxh3_64(w.written()));
  w.zeros_to(kRecordHeaderBytes);
}

Result<RecordHeader> decode_record_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kRecordHeaderBytes) return corrupt("block record: too short");
  ByteReader in(bytes.first(kRecordHeaderBytes));
  DI_TRY(check_start(in, kRecordMagic, "block record: magic"));
  RecordHeader h;
  const uint16_t flags = in.u16();
  h.encrypted = flags == kEncrypted;
  h.key = take_digest(in);
  h.length = in.u32();
  h.num_tokens = in.u32();
  h.nonce = take_array<24>(in);
  h.tag = take_array<16>(in);
  h.written_unix_s = in.number<int64_t>();
  h.check.low = in.u64();
  h.check.high = in.u64();
  const size_t checked = in.position();
  if (in.u64() != xxh3_64(bytes.first(checked))) return corrupt("block record: header checksum");
  if (flags > kEncrypted || h.length == 0 || h.length > kMaxRowBytes) return corrupt("block record: range");
  return h;
}

bool rows_match(const RecordHeader& header, std::span<const std::byte> bytes, std::span<const std::byte> rows) {
  return rows.size() == header.length && bytes.size() >= kCheckedBytes && xxh3_128({bytes.first(kCheckedBytes), rows}) == header.check;
}

uint32_t written_after(const SegmentHeader& segment, int64_t written_unix_s) {
  return static_cast<uint32_t>(std::clamp<int64_t>(written_unix_s - segment.bucket_unix_s, 0, INT32_MAX));
}

std::vector<std::byte> encode_footer(std::span<const FooterEntry> entries, uint64_t footer_page) {
  const size_t footer_bytes = entries.size() * kFooterEntryBytes, padded = static_cast<size_t>(to_pages(footer_bytes) * kPage);
  std::vector<std::byte> out(padded + kPage);
  Writer footer{std::span<std::byte>(out).first(padded)};
  for (const FooterEntry& entry : entries) {
    footer.array(entry.key.bytes);
    footer.number(entry.page);
    footer.number(entry.length);
    footer.number(entry.written_after_s);
  }
  const Check128 check = xxh3_128({footer.written()});
  Writer w{std::span<std::byte>(out).subspan(padded)};
  w.number(kTrailerMagic);
  w.number(kVersion);
  w.number(uint16_t{0});
  w.number(static_cast<uint32_t>(entries.size()));
  w.number(uint32_t{0});
  w.number(footer_page);
  w.number(check.low);
  w.number(check.high);
  w.number(uint64_t{0});
  w.number(xxh3_64(w.written()));
  return out;
}

Result<SegmentTrailer> decode_trailer(std::span<const std::byte> page, uint64_t file_size) {
  if (page.size() < kTrailerBytes) return corrupt("segment trailer: too short");
  ByteReader in(page.first(kTrailerBytes));
  DI_TRY(check_start(in, kTrailerMagic, "segment trailer: magic"));
  in.u16();
  SegmentTrailer t;
  t.num_records = in.u32();
  in.u32();
  t.footer_page = in.u64();
  t.footer_check.low = in.u64();
  t.footer_check.high = in.u64();
  in.u64();
  const size_t checked = in.position();
  if (in.u64() != xxh3_64(page.first(checked))) return corrupt("segment trailer: checksum");
  // Header page, at least a page a record, the footer, this page.
  const uint64_t pages = file_size / kPage;
  if (t.footer_page == 0 || t.footer_page > pages || t.num_records >= t.footer_page ||
      t.footer_page + to_pages(uint64_t{t.num_records} * kFooterEntryBytes) + 1 != pages) {
    return corrupt("segment trailer: range");
  }
  return t;
}

Result<std::vector<FooterEntry>> decode_footer(const SegmentTrailer& trailer, std::span<const std::byte> footer) {
  if (footer.size() != size_t{trailer.num_records} * kFooterEntryBytes) return corrupt("segment footer: length");
  if (xxh3_128({footer}) != trailer.footer_check) return corrupt("segment footer: checksum");
  std::vector<FooterEntry> entries(trailer.num_records);
  ByteReader in(footer);
  for (FooterEntry& entry : entries) {
    entry.key = take_digest(in);
    entry.page = in.u32();
    entry.length = in.u32();
    entry.written_after_s = in.u32();
    if (entry.page == 0 || entry.length == 0 || entry.length > kMaxRowBytes || entry.page + record_pages(entry.length) > trailer.footer_page) {
      return corrupt("segment footer: range");
    }
  }
  return entries;
}

std::string segment_name(const SegmentHeader& header) {
  return fmt::format("{}.{}.{:016x}.{:06}{}", header.retention_class, header.bucket_unix_s, header.writer, header.sequence, kSuffix);
}

bool is_segment_name(std::string_view name) {
  if (!name.ends_with(kSuffix)) return false;
  std::array<std::string_view, 4> parts;  // class, bucket, writer, sequence
  std::string_view rest = name.substr(0, name.size() - kSuffix.size());
  for (std::string_view& part : parts) {
    const size_t dot = rest.find('.');
    part = rest.substr(0, dot);
    if ((dot == std::string_view::npos) != (&part == &parts.back())) return false;
    rest.remove_prefix(std::min(rest.size(), dot + 1));
  }
  return is_class_name(parts[0]) && is_number(parts[1]) && parts[2].size() == 16 && std::all_of(parts[2].begin(), parts[2].end(), is_hex_digit) &&
         is_number(parts[3]);
}

uint64_t writer_in_name(std::string_view name) {
  if (!is_segment_name(name)) return 0;
  const size_t begin = name.find('.', name.find('.') + 1) + 1;
  uint64_t writer = 0;
  std::from_chars(name.data() + begin, name.data() + begin + 16, writer, 16);
  return writer;
}

int64_t expiry_of(const SegmentHeader& header, int64_t now_s) {
  return std::min(header.expires_unix_s, now_s + (header.expires_unix_s - header.bucket_unix_s));
}

Digest256 namespace_of(std::string_view weights, std::string_view architecture, std::string_view format, int32_t block_tokens) {
  return root_key({.weights = weights, .architecture = architecture, .format = format, .block_tokens = block_tokens});
}

Digest256 tenant_folder(const Digest256& master, std::string_view tenant) {
  const std::string message = "deepinfer tenant folder v1" + std::string(tenant);
  return blake2b_256(std::as_bytes(std::span(message)), std::as_bytes(std::span(master.bytes)));
}

std::string folder_name(const Digest256& digest) { return digest.hex().substr(0, 32); }

bool is_folder_name(std::string_view name) { return name.size() == 32 && std::all_of(name.begin(), name.end(), is_hex_digit); }

}  // namespace deepinfer::kv
