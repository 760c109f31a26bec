// Tree ensembles of ai.onnx.ml, as regressions without a transformation: trees_layer.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_OPERATORS_TREES_H_
#define ULFD_TOOLS_CONVERT_ONNX_OPERATORS_TREES_H_

#include "absl/status/status.h"
#include "tools/convert/onnx/model/graph.h"

namespace ulfd::convert {

absl::Status ConvertTrees(OnnxNode& node);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_OPERATORS_TREES_H_
