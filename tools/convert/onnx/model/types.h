// Element types of all values of an ONNX graph, and what single precision means for integers.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_TYPES_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_TYPES_H_

#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "engine/tensor/tensor.h"
#include "onnx/onnx_pb.h"
#include "tools/convert/onnx/model/graph.h"

namespace ulfd::convert {

bool IsOneOf(const std::string& op, std::initializer_list<const char*> ops);
// Equal, Greater, Less, GreaterOrEqual, LessOrEqual.
bool IsComparison(const std::string& op);
// Whether all are integers of a magnitude below `most`.  Null: no.
bool IsSmallConstant(const Constant* constant, double most);
// Integers as ids have them: INT32, INT64.
bool IsIdType(int type);
// FLOAT, DOUBLE.
bool IsPlainFloat(int type);

// Attribute of a node that stands for others: below what the inputs' integers must be for that.
inline constexpr char kIntegersBelow[] = "integers_below";

// Tells `graph` the type of every initializer, input and output of a node.
void InferTypes(const onnx::GraphProto& proto, OnnxGraph& graph);

// Limits the inputs so that no integer of this bound is beyond `exact`, up to which there are all;
// false: that would leave hardly any.
bool LimitTo(const IntegerBound& bound, OnnxGraph& graph, int64_t exact = engine::kFloatIntegers);

// ULF computes in single precision, which has integers up to 2^24.  Whether the node gives what
// ONNX's integers would where it reads larger ones: it moves them, compares them with small ones,
// or makes floats of them, as the model says.  Where it does not, the inputs are limited
// (OnnxGraph::LimitInputs) so that nothing is rounded, or the node is to be its formula
// (OnnxGraph::UsesFormula).  UNIMPLEMENTED names the input if no limit does that.  `reader`: the
// only one of the node's output, or null.
absl::Status CheckIntegers(const onnx::NodeProto& node, OnnxGraph& graph,
                           const onnx::NodeProto* reader);
// Marks the outputs that hold rounded or small integers because an input does.  After the
// conversion.
void MarkIntegers(const onnx::NodeProto& node, OnnxGraph& graph);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_TYPES_H_
