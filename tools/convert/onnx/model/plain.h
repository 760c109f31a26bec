// Operators that others say as well, written as those.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_PLAIN_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_PLAIN_H_

#include <cstdint>

#include "onnx/onnx_pb.h"

namespace ulfd::convert {

// Replaces what exporters write for split(), unbind() and stack() by sequences of tensors
// (SplitToSequence, SequenceConstruct, SequenceAt, ConcatFromSequence, ...) by Slice, Squeeze,
// Unsqueeze and Concat, CastLike by Cast, and GroupNormalization by InstanceNormalization.  A
// Softmax of x - max(x) becomes one of x: the maximum may be of all rows.  States that are zeros,
// repeated for each row, are left out, and parts of which only the shape is read.  What depends on
// values, or on sizes that the nodes do not say, stays as it is.
void WritePlainly(onnx::GraphProto& graph, int64_t opset);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_PLAIN_H_
