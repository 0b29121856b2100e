// kv/row_cipher.h: rows at rest, encrypted and authenticated: XChaCha20-Poly1305 (libsodium), a fresh random nonce a record, the block's key
// and length as associated data, so that a record moved under another key does not open. Immutable; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/hash.h"
#include "base/result.h"
#include "io/disk.h"
#include "kv/segment_format.h"

namespace deepinfer::kv {

class RowCipher {
 public:
  explicit RowCipher(const Digest256& key);
  // The key is the file's content: 32 bytes, or 64 hex digits. Errors: those of reading; kInvalidArgument (anything else, or a file that
  // others may read).
  static Result<RowCipher> load(const std::string& path);

  const std::array<uint8_t, 16>& id() const { return id_; }  // names the key, says nothing about it
  // In place; fills nonce and tag of the header.
  void encrypt(RecordHeader& header, std::span<std::byte> rows) const;
  bool decrypt(const RecordHeader& header, std::span<std::byte> rows) const;  // false: not these rows, or not this key

 private:
  Digest256 key_;
  std::array<uint8_t, 16> id_{};
};

}  // namespace deepinfer::kv
