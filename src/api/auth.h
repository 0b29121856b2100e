// API keys and the tenants that they stand for. Immutable after loading. Keys are kept as digests only; a presented key is compared
// with every one of them in constant time, so neither the time nor a dump of the process says anything about a key.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace deepinfer::api {

class ApiKeys {
 public:
  ApiKeys() = default;  // none: everybody is let in

  // A file of one key a line, `KEY` or `TENANT:KEY`; empty lines and lines that begin with # are skipped. Keys without a tenant share
  // the default one. Errors: kIo, kInvalidArgument (a line that is no key, a key twice, no key at all), naming file and line but no key.
  static Result<ApiKeys> load(const std::string& path);
  static Result<ApiKeys> parse(std::string_view text, std::string_view name);

  bool required() const { return !entries_.empty(); }
  // The tenant of a key, as Request::tenant wants it: "" for the default tenant, else a hash of the name. nullopt: not a key.
  std::optional<std::string> tenant_of(std::string_view key) const;
  // As the file names the tenant of an id; "default" for "".
  std::string tenant_name(std::string_view id) const;
  bool has_tenant(std::string_view id) const;  // tenant_id(); without keys there is the default one alone

 private:
  struct Entry {
    Digest256 key;
    std::string tenant, name;  // its id; as the file has it
  };
  std::vector<Entry> entries_;
};

// What Request::tenant holds for the tenant of this name; "default" is the one of keys without a name.
std::string tenant_id(std::string_view name);

// Of what is kept to be quicker the next time, a client learns by the clock what was kept: so each is kept for those alone who may know of each other's
// requests. A tenant's, or of a tenant's requests those with one `cache_salt`.
Digest256 knowledge_scope(std::string_view tenant, std::string_view salt = {});

// The key in `Authorization: Bearer KEY` or else in `x-api-key: KEY`; empty if neither.
std::string_view presented_key(std::string_view authorization, std::string_view x_api_key);

}  // namespace deepinfer::api
