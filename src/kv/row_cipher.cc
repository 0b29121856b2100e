#include "kv/row_cipher.h"

#include <algorithm>
#include <cstring>
#include <sodium.h>
#include <sys/stat.h>

#include "io/mapped_file.h"

namespace deepinfer::kv {
namespace {

using Associated = std::array<unsigned char, 40>;

Associated associated(const RecordHeader& header) {
  Associated out{};
  std::copy(header.key.bytes.begin(), header.key.bytes.end(), out.begin());
  std::memcpy(out.data() + 32, &header.length, 4);
  std::memcpy(out.data() + 36, &header.num_tokens, 4);
  return out;
}

unsigned char* bytes_of(std::span<std::byte> rows) { return reinterpret_cast<unsigned char*>(rows.data()); }

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

RowCipher::RowCipher(const Digest256& key) : key_(key) {
  const std::string_view domain = "deepinfer cache key id v1";
  const Digest256 digest = blake2b_256(std::as_bytes(std::span(domain)), std::as_bytes(std::span(key.bytes)));
  std::copy_n(digest.bytes.begin(), id_.size(), id_.begin());
}

Result<RowCipher> RowCipher::load(const std::string& path) {
  DI_TRY(std::string text, io::read_small_file(path, 4096));
  struct stat s {};
  if (::stat(path.c_str(), &s) == 0 && (s.st_mode & 077) != 0) {
    return Error{Code::kInvalidArgument, path + ": others may read this key; chmod 600 it"};
  }
  Digest256 key;
  if (text.size() == key.bytes.size()) {
    std::memcpy(key.bytes.data(), text.data(), key.bytes.size());
    return RowCipher(key);
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  bool ok = text.size() == 2 * key.bytes.size();
  for (size_t i = 0; ok && i < key.bytes.size(); ++i) {
    const int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);
    ok = high >= 0 && low >= 0;
    key.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  if (!ok) return Error{Code::kInvalidArgument, path + ": a cache key is 32 bytes or 64 hex digits"};
  return RowCipher(key);
}

void RowCipher::encrypt(RecordHeader& header, std::span<std::byte> rows) const {
  header.encrypted = true;
  randombytes_buf(header.nonce.data(), header.nonce.size());
  const Associated data = associated(header);
  crypto_aead_xchacha20poly1305_ietf_encrypt_detached(bytes_of(rows), header.tag.data(), nullptr, bytes_of(rows), rows.size(), data.data(), data.size(),
                                                      nullptr, header.nonce.data(), key_.bytes.data());
}

bool RowCipher::decrypt(const RecordHeader& header, std::span<std::byte> rows) const {
  const Associated data = associated(header);
  return crypto_aead_xchacha20poly1305_ietf_decrypt_detached(bytes_of(rows), nullptr, bytes_of(rows), rows.size(), header.tag.data(), data.data(),
                                                             data.size(), header.nonce.data(), key_.bytes.data()) == 0;
}

}  // namespace deepinfer::kv
