// What a conversion may hold: a few bytes of a model can ask for any number of nodes and for
// constants of any size.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_BUDGET_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_BUDGET_H_

#include <new>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "onnx/onnx_pb.h"

namespace ulfd::convert {

// The limits of a LoadScope, in bytes, for one step of the conversion of the model (reading
// external data aside), beside what is held already.  Roots stay those of the scope around it.
LoadLimits BudgetOf(const onnx::ModelProto& model);

// RESOURCE_EXHAUSTED once the scope of such a budget has refused memory.
absl::Status CheckBudget();

// f(), or that error, behind `text`, if f runs out of memory.  `f` returns absl::Status or
// absl::StatusOr.
template <typename F>
auto WithinBudget(absl::string_view text, F f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    const absl::Status over = Annotate(CheckBudget(), text);
    return over.ok() ? AllocationFailure() : over;
  }
}

// As errors name a node.
std::string NodeText(const onnx::NodeProto& node);

// fn(node) for every node, or that error, which names the node.
template <typename Fn>
absl::Status ForEachNode(const onnx::GraphProto& graph, Fn fn) {
  for (const onnx::NodeProto& node : graph.node()) {
    RETURN_IF_ERROR(WithinBudget(NodeText(node), [&] {
      fn(node);
      return absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_BUDGET_H_
