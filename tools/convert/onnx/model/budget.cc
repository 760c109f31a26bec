// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/model/budget.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/errors.h"

namespace ulfd::convert {

LoadLimits BudgetOf(const onnx::ModelProto& model) {
  // Weights are held as the file has them, as constants and as blobs; integers take more.
  constexpr int64_t kTimes = 8, kSpare = int64_t{1} << 28;
  LoadLimits limits;
  if (const LoadScope* around = LoadScope::Current()) limits = around->limits();
  limits.max_memory_bytes = kSpare + kTimes * static_cast<int64_t>(model.ByteSizeLong());
  return limits;
}

std::string NodeText(const onnx::NodeProto& node) {
  const bool unnamed = node.name().empty() && node.output_size() > 0;
  return absl::StrCat("node \"", unnamed ? node.output(0) : node.name(), "\" (", node.op_type(),
                      ")");
}

absl::Status CheckBudget() {
  absl::Status status = LoadScope::Check();
  if (!absl::IsResourceExhausted(status)) return status;
  return ResourceExhausted("the nodes and constants that the model makes take more than ",
                           LoadScope::Current()->limits().max_memory_bytes >> 20,
                           " MiB, which is all that a file of its size may");
}

}  // namespace ulfd::convert
