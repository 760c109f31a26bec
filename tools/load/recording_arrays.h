// A recorded call as arrays, for the tools that work on npz files.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_RECORDING_ARRAYS_H_
#define ULFD_TOOLS_LOAD_RECORDING_ARRAYS_H_

#include "absl/status/statusor.h"
#include "engine/weights/npz.h"
#include "proto/recording.pb.h"

namespace ulfd::tools {

// The request under the names of the graph's inputs, as `ulf score` and `ulf predict` take it; what
// a request may leave out (weights, ids per row, shapes) is filled in.  DATA_LOSS if it does not
// parse, UNIMPLEMENTED for a KServe datatype other than FP32, INT32 and INT64, INVALID_ARGUMENT for
// a shape that has not the values that are there.
absl::StatusOr<engine::NpzArrays> InputsOfRecording(const recording::v1::Recording& record);

// The scores under the names of the outputs, and "top_k.indices" if the best were asked for.
// INVALID_ARGUMENT as above.
absl::StatusOr<engine::NpzArrays> OutputsOfRecording(const recording::v1::Recording& record);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_RECORDING_ARRAYS_H_
