// Reads every weight of a checkpoint and looks for numbers that are none: what loading cannot do, since it would read the whole file.
#pragma once

#include "base/result.h"
#include "model/checkpoint.h"

namespace deepinfer::model {

// Errors: kCorruption, naming the first tensor with a NaN or an infinity (a scale of 0xff, a code of 0x7f, …) and its place. Sequential, at
// the disk's rate; what was read does not stay resident.
Result<> check_values(const Checkpoint& checkpoint);
// The same of one of its tensors.
Result<> check_values(const Checkpoint& checkpoint, const TensorView& tensor);

}  // namespace deepinfer::model
