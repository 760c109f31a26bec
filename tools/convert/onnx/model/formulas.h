// Formulas of integers that are computed of int64 inputs.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_FORMULAS_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_FORMULAS_H_

#include "onnx/onnx_pb.h"
#include "tools/convert/onnx/model/graph.h"

namespace ulfd::convert {

// Gives the node's output a formula (OnnxGraph::SetFormula) where an operand has one, the others
// are constants or exact, and the operator computes element by element or only moves elements.
// Whether the output is computed so is for CheckIntegers to say, which comes after.
void ComposeFormula(const onnx::NodeProto& node, OnnxGraph& graph);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_FORMULAS_H_
