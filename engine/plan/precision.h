// In which precision the steps of a plan compute their products with weights.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_PLAN_PRECISION_H_
#define ULFD_ENGINE_PLAN_PRECISION_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/kernels/low_precision.h"

namespace ulfd::model::v1 {
class ModelManifest;
}  // namespace ulfd::model::v1

namespace ulfd::engine {

struct Graph;
struct Plan;

// What is asked for: of the whole model, and of single layers, by name.
struct PrecisionChoice {
  Precision model = Precision::kFp32;
  std::vector<std::pair<std::string, Precision>> layers;

  // Whether there is anything but fp32 everywhere.
  bool asks() const { return model != Precision::kFp32 || !layers.empty(); }
};

PrecisionChoice PrecisionOf(const ulfd::model::v1::ModelManifest& manifest);

// The precision of that name, in either case.  INVALID_ARGUMENT naming those that there are.
absl::StatusOr<Precision> ParsePrecision(absl::string_view name);

// Prepares the steps of `optimised`, if it is there; the graph as written stays in fp32.  A step
// that stands for several layers is computed in the most exact precision of these.  What asks for
// instructions that this machine lacks stays in fp32, and `notices` say so.
// INVALID_ARGUMENT for a layer that is not there, is named twice, is one of `double_layers`, or has
// no such products.
absl::Status ChoosePrecisions(const PrecisionChoice& choice,
                              absl::Span<const std::string> double_layers, const Graph& graph,
                              const Plan& written, const Plan* optimised,
                              std::vector<std::string>& notices);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_PLAN_PRECISION_H_
