// Rows of a request that a mask of the model chooses, computes with, and puts back.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_CHOSEN_ROWS_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_CHOSEN_ROWS_H_

#include "onnx/onnx_pb.h"

namespace ulfd::convert {

// What puts rows back: (mask [rows], x, y) gives rows of x where the mask is set, and of y where
// not.
inline constexpr char kWhereRows[] = "WhereRows";

// Whether KeepAllRows may have something to do.
bool ChoosesRows(const onnx::GraphProto& graph);

// y[mask] = f(x[mask]), and rows that are sorted and sorted back, as exporters write them for
// packed sequences: f of all rows in their places, and kWhereRows.  That is the same as long as
// f computes each row alone.  False, and nothing changed, where the graph has no such rows, or
// they meet others before they are back.
bool KeepAllRows(onnx::GraphProto& graph);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_CHOSEN_ROWS_H_
