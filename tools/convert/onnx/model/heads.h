// Heads of attention that are stacked in front of the rows.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_HEADS_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_HEADS_H_

#include <cstdint>

#include "onnx/onnx_pb.h"

namespace ulfd::convert {

// Whether the graph computes the size of equal parts of something, as chunk() does.
bool CutsParts(const onnx::GraphProto& graph);

// Rewrites cat(x.chunk(h, -1), dim=0), as models ported from TensorFlow split x into heads, what is
// repeated (y.repeat(h, 1, 1)) for them, and cat(z.chunk(h, dim=0), -1), which puts them back: row
// r of head i becomes row r * h + i instead of i * rows + r.  What is between gives the same where
// rows do not meet; whether they do is left to the proof.  False: nothing was rewritten.
bool StackBesideRows(onnx::GraphProto& graph, int64_t opset);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_HEADS_H_
