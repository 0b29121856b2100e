#include "model/load_tensors.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "base/units.h"
#include "io/free_memory.h"

namespace deepinfer::model {

Result<> load_tensors(Checkpoint& checkpoint, const std::function<bool(std::string_view)>& wanted, Workers& workers) {
  const std::span<io::MappedFile> files = checkpoint.mappings();
  std::vector<std::vector<std::span<const std::byte>>> ranges(files.size());
  uint64_t needed = 0;
  for (const TensorView& tensor : checkpoint.tensors()) {
    if (!wanted(tensor.name)) continue;
    const io::MappedFile* file = checkpoint.mapping_of(tensor);
    if (file == nullptr) return Error{Code::kInvalidArgument, fmt::format("tensor {} does not lie in a file", tensor.name)};
    ranges[static_cast<size_t>(file - files.data())].push_back(tensor.data);
    needed += tensor.data.size();
  }
  const uint64_t free = io::free_memory_bytes();
  if (free != 0 && needed > free)
    return Error{Code::kResourceExhausted, fmt::format("{}: its weights need {} of memory, and {} is free; without --no-mmap they are read from the file", checkpoint.path(),
                                                       format_size(needed), format_size(free))};

  std::vector<Result<>> results(files.size());
  workers.run([&](Team& team) {
    team.reset_tickets();
    for (int64_t ticket; (ticket = team.next_ticket()) < static_cast<int64_t>(files.size());) {
      const auto i = static_cast<size_t>(ticket);
      for (const std::span<const std::byte> range : joined(std::move(ranges[i])))
        if (results[i]) results[i] = files[i].load(range);
    }
  });
  const auto failed = std::find_if(results.begin(), results.end(), [](const Result<>& result) { return !result; });
  return failed == results.end() ? Result<>() : *failed;
}

}  // namespace deepinfer::model
