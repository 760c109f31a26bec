// Numbers of rows that a model is fixed to.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_ROWS_FIXED_ROWS_H_
#define ULFD_TOOLS_CONVERT_ONNX_ROWS_FIXED_ROWS_H_

#include <string>
#include <vector>

#include "tools/convert/onnx/model/onnx_model.h"

namespace ulfd::convert {

// The rows of the export's example, where the model has them as a number (`len(x)`) though its
// inputs, all but constants, may have any: the only one of its numbers that it runs with.  0: it
// runs with others, or with none of them, or computes with the number, too (`x / len(x)`).
int64_t FixedRows(const OnnxModel& model, const std::vector<std::string>& inputs);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_ROWS_FIXED_ROWS_H_
