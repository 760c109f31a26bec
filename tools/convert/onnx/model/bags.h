// Embedding bags of an ONNX model: loops over slices of ids, as exporters write them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_BAGS_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_BAGS_H_

#include <cstdint>

#include "onnx/onnx_pb.h"

namespace ulfd::convert {

bool HasLoops(const onnx::GraphProto& graph);

// Replaces every Loop that gathers rows of a table by a slice of flattened ids [rows, n], and
// reduces them, by a Gather of the ids as they were and a reduction of axis 1: a bag for each row.
// Ids [rows] are looked up, one for each row.  That the slices are the rows is for the proof to
// see.  False: there is none.
bool UnrollBags(onnx::GraphProto& graph, int64_t opset);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_BAGS_H_
