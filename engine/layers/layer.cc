// What layers do unless their type says otherwise.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/layer.h"

#include "base/errors.h"

namespace ulfd::engine {

double Layer::Flops(absl::Span<const TensorSpec>, absl::Span<const TensorSpec> out) const {
  double flops = 0;
  for (const TensorSpec& spec : out) flops += static_cast<double>(spec.shape.Elements().value());
  return flops;
}

absl::Status Layer::Lower(Lowering&) const {
  return Internal("Lower of a layer that is not composite");
}

absl::StatusOr<std::unique_ptr<Kernel>> Layer::Prepare(absl::Span<const TensorSpec>) const {
  return Internal("Prepare of a composite layer, want Lower");
}

}  // namespace ulfd::engine
