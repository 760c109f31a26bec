// Numbers that stand for the rows of an export's example.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_ROWS_EXAMPLE_ROWS_H_
#define ULFD_TOOLS_CONVERT_ONNX_ROWS_EXAMPLE_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace ulfd::convert {

// The inputs, and what is computed of them, have as many rows as a request, where the export's
// example had `rows`.  Sizes of Reshape and Expand follow them.  So do constants that meet them, if
// they are a row that is repeated as often, or numbers of rows.  With `rows` rows the graph gives
// what it gave.  Which axis has rows is seen by running the example's graph beside the one that is
// written, with more rows, node by node.  A size of 1 does not always tell; UNIMPLEMENTED if a
// guess shows itself wrong.  certain: that the inputs have these rows is none.
absl::Status FollowRows(onnx::GraphProto& graph, int64_t opset, int64_t rows,
                        const std::vector<std::string>& inputs, bool certain);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_ROWS_EXAMPLE_ROWS_H_
