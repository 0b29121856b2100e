// io/memory_key_values.h: KeyValues in memory that can go wrong on request, for tests. Thread-safe, so that a test looks in while a store uses it.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "io/key_values.h"

namespace deepinfer::io {

class MemoryKeyValues final : public KeyValues {
 public:
  Result<> put(std::span<const Item> items) override {
    DI_TRY(check());
    const std::lock_guard lock(mu_);
    for (const Item& item : items) values_[item.key] = item;
    return {};
  }

  Result<std::vector<std::string>> get(std::span<const std::string> keys) override {
    DI_TRY(check());
    const std::lock_guard lock(mu_);
    std::vector<std::string> out;
    for (const std::string& key : keys) {
      const auto it = values_.find(key);
      out.push_back(it == values_.end() ? std::string() : it->second.value.substr(0, kMaxValueBytes + 1));
    }
    return out;
  }

  // Asked before every call, without a lock held, so it may block; a returned error is what the caller gets.
  void set_fault(std::function<Result<>()> fault) {
    const std::lock_guard lock(mu_);
    fault_ = std::move(fault);
  }
  std::map<std::string, Item> items() const {
    const std::lock_guard lock(mu_);
    return values_;
  }
  void set_value(const std::string& key, std::string value) {
    const std::lock_guard lock(mu_);
    values_[key].value = std::move(value);
  }
  void clear() {
    const std::lock_guard lock(mu_);
    values_.clear();
  }

 private:
  Result<> check() const {
    std::function<Result<>()> fault;
    {
      const std::lock_guard lock(mu_);
      fault = fault_;
    }
    return fault ? fault() : Result<>();
  }

  mutable std::mutex mu_;
  std::map<std::string, Item> values_;
  std::function<Result<>()> fault_;
};

}  // namespace deepinfer::io
