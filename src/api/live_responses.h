// Responses that are being made right now, by id, so that another connection of the same tenant can look at one or cancel it. Any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/thread_annotations.h"
#include "core/request.h"

namespace deepinfer::api {

class LiveResponses {
 public:
  struct Entry {
    std::string tenant;
    RequestId request = 0;
    std::string response;  // as it was at its start, JSON
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);  // a client asked for the end
    std::shared_ptr<std::atomic<bool>> removed = std::make_shared<std::atomic<bool>>(false);    // and that it is not kept
  };

  void add(const std::string& id, Entry entry) {
    MutexLock lock(mu_);
    entries_.insert_or_assign(id, std::move(entry));
  }
  void remove(const std::string& id) {
    MutexLock lock(mu_);
    entries_.erase(id);
  }
  std::optional<Entry> find(const std::string& id, const std::string& tenant) {
    MutexLock lock(mu_);
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second.tenant != tenant) return std::nullopt;
    return found->second;
  }

 private:
  Mutex mu_;
  std::map<std::string, Entry> entries_ GUARDED_BY(mu_);
};

}  // namespace deepinfer::api
