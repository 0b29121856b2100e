// Texts that leave this process and come back through hands that may neither read nor change them: XChaCha20-Poly1305 (libsodium) under
// one key. A fresh random nonce each time; 24 bytes are enough to never meet again. Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

class Sealer {
 public:
  // A key of its own, which ends with the process: what it sealed cannot be opened afterwards.
  static Sealer with_random_key();
  // A key made from any secret bytes (hashed), so that a secret may be a line of text.
  static Sealer from_secret(std::string_view secret);

  // Base64 (URL alphabet, no padding) of version, nonce and ciphertext; about 4/3 of the text and 55 bytes. context: what the text is for,
  // and whose; open() with another one fails.
  std::string seal(std::string_view text, std::string_view context) const;
  // nullopt: not made with this key and context, or changed.
  std::optional<std::string> open(std::string_view sealed, std::string_view context) const;

 private:
  std::array<uint8_t, 32> key_{};
};

}  // namespace deepinfer
