// Functions of an ONNX model, as newer exporters write them: replaced by their nodes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_FUNCTIONS_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_FUNCTIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace ulfd::convert {

// Adds a node of one output.
onnx::NodeProto& AddNode(const std::string& op, const std::string& name,
                         const std::vector<std::string>& inputs, const std::string& output,
                         google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes);
// Adds an attribute that the node lacks.
void SetInt(onnx::NodeProto& node, const char* name, int64_t value);
void SetInts(onnx::NodeProto& node, const char* name, const std::vector<int64_t>& values);
void SetFloat(onnx::NodeProto& node, const char* name, float value);
void SetString(onnx::NodeProto& node, const char* name, const std::string& value);

// Replaces every call of a function of the model by the function's nodes, in branches, too.
// INVALID_ARGUMENT names a function that calls itself or is called with too much;
// RESOURCE_EXHAUSTED where the result would have more than 100000 nodes, or past the budget of the
// thread's LoadScope (budget.h).
absl::Status InlineFunctions(onnx::ModelProto& model);

// Which branch an If node takes (1: then; 0: else), or how many passes a Loop has, where a
// number, as `known` has those by name, says it.  Rows are not squeezed where a request has one.
std::optional<int64_t> DecisionOf(
    const onnx::NodeProto& node,
    absl::FunctionRef<std::optional<int64_t>(const std::string&)> known);

// Such decisions by the node's first output.
using Branches = std::map<std::string, int64_t>;
// Replaces these If nodes by the nodes of the branch, and the loops by their passes; what these
// gather is a sequence, for WritePlainly.
// INVALID_ARGUMENT for an If that lacks the branch; UNIMPLEMENTED for a Loop that may end early;
// RESOURCE_EXHAUSTED as above.
absl::Status TakeBranches(onnx::GraphProto& graph, const Branches& branches);

// The graph's inputs that a request gives: some formats declare constants there, too.
std::vector<onnx::ValueInfoProto*> RequestInputs(onnx::GraphProto& graph);

// In all nodes, whether they make or read it.
void RenameValue(const std::string& from, const std::string& to, onnx::GraphProto& graph);

// Lets nodes read what Identity, or Dropout outside of training, would hand them.
void SkipCopies(onnx::GraphProto& graph);

// Drops the nodes whose outputs nothing reads.
void DropUnread(onnx::GraphProto& graph);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_FUNCTIONS_H_
