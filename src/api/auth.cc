#include "api/auth.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

namespace deepinfer::api {
namespace {

constexpr size_t kMaxKeys = 100'000;  // every request is compared with each

Digest256 digest(std::string_view text, std::string_view purpose) {
  return blake2b_256(std::as_bytes(std::span(text)), std::as_bytes(std::span(purpose)));
}
Digest256 key_digest(std::string_view key) { return digest(key, "deepinfer api key"); }

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// What can stand in a header: visible ASCII without spaces.
bool is_key(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

Result<ApiKeys> ApiKeys::load(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error{Code::kIo, fmt::format("cannot read the API key file {}: {}", path, std::strerror(errno))};
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad()) return Error{Code::kIo, fmt::format("cannot read the API key file {}", path)};
  return parse(text.str(), path);
}

Result<ApiKeys> ApiKeys::parse(std::string_view text, std::string_view name) {
  ApiKeys out;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    const size_t colon = line.find(':');
    const std::string_view tenant = colon == std::string_view::npos ? std::string_view() : trimmed(line.substr(0, colon));
    const std::string_view key = colon == std::string_view::npos ? line : trimmed(line.substr(colon + 1));
    if (!is_key(key) || (colon != std::string_view::npos && tenant.empty())) {
      return Error{Code::kInvalidArgument, fmt::format("{} line {}: expected KEY or TENANT:KEY, keys being visible ASCII", name, number)};
    }
    Entry entry{.key = key_digest(key), .tenant = tenant_id(tenant), .name = std::string(tenant)};
    const bool twice = std::any_of(out.entries_.begin(), out.entries_.end(), [&](const Entry& other) { return other.key == entry.key; });
    if (twice) return Error{Code::kInvalidArgument, fmt::format("{} line {}: this key appears twice", name, number)};
    if (out.entries_.size() == kMaxKeys) return Error{Code::kInvalidArgument, fmt::format("{} holds more than {} keys", name, kMaxKeys)};
    out.entries_.push_back(std::move(entry));
  }
  if (out.entries_.empty()) return Error{Code::kInvalidArgument, fmt::format("{} holds no API key", name)};
  return out;
}

std::optional<std::string> ApiKeys::tenant_of(std::string_view key) const {
  const Digest256 presented = key_digest(key);
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {  // no early end
    if (CRYPTO_memcmp(entry.key.bytes.data(), presented.bytes.data(), presented.bytes.size()) == 0) found = &entry;
  }
  if (found == nullptr) return std::nullopt;
  return found->tenant;
}

bool ApiKeys::has_tenant(std::string_view id) const {
  if (entries_.empty()) return id == tenant_id("default");
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.tenant == id; });
}

std::string ApiKeys::tenant_name(std::string_view id) const {
  if (id.empty()) return "default";
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.tenant == id; });
  return found == entries_.end() ? std::string(id) : found->name;
}

std::string tenant_id(std::string_view name) { return name.empty() || name == "default" ? "" : digest(name, "deepinfer tenant").hex(); }

Digest256 knowledge_scope(std::string_view tenant, std::string_view salt) {
  const Digest256 own = digest(tenant, "deepinfer knowledge scope");
  return salt.empty() ? own : blake2b_256(std::as_bytes(std::span(salt)), std::as_bytes(std::span(own.bytes)));
}

std::string_view presented_key(std::string_view authorization, std::string_view x_api_key) {
  constexpr std::string_view kScheme = "bearer ";
  const auto same = [](char a, char b) { return (a | 0x20) == b || a == b; };
  if (authorization.size() > kScheme.size() && std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                                                          [&](char want, char is) { return same(is, want); })) {
    return trimmed(authorization.substr(kScheme.size()));
  }
  return trimmed(x_api_key);
}

}  // namespace deepinfer::api
