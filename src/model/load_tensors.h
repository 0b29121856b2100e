// Weights that are read in full for every token, in memory of this process: pages of 2 MiB, which processors read faster than a mapped
// file's of 4 KiB, for a start that takes as long as the disk does. The tensors stay at their addresses.
#pragma once

#include <functional>
#include <string_view>

#include "base/result.h"
#include "kernels/team.h"
#include "model/checkpoint.h"

namespace deepinfer::model {

// Loads the tensors that `wanted` names, but for pages that they share with others. Each file by one thread.
// Errors: kResourceExhausted (they are larger than what is free; nothing was loaded), kInvalidArgument (their bytes are not in a mapped
// file), those of io::MappedFile::load.
Result<> load_tensors(Checkpoint& checkpoint, const std::function<bool(std::string_view name)>& wanted, Workers& workers);

}  // namespace deepinfer::model
