// Functions of an ONNX model, as newer exporters write them: replaced by their nodes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_FUNCTIONS_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_FUNCTIONS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace ulfd::convert {

// Replaces every call of a function of the model by the function's nodes, in branches, too.
// INVALID_ARGUMENT names a function that calls itself or is called with too much;
// RESOURCE_EXHAUSTED where the result would have more than 100000 nodes.
absl::Status InlineFunctions(onnx::ModelProto& model);

// Which branch (true: then) an If node takes, by its first output.
using Branches = std::map<std::string, bool>;
// Replaces these If nodes by the nodes of the branch.  INVALID_ARGUMENT for one that lacks it;
// RESOURCE_EXHAUSTED as above.
absl::Status TakeBranches(onnx::GraphProto& graph, const Branches& branches);

// Drops the nodes whose outputs nothing reads.
void DropUnread(onnx::GraphProto& graph);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_FUNCTIONS_H_
