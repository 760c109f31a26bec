// What layers do unless their type says otherwise.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/layer.h"

namespace ulfd::engine {

absl::Status Layer::Lower(LoweringSink&) {
  return absl::InternalError("Lower of a layer that is not composite");
}

absl::StatusOr<std::unique_ptr<Kernel>> Layer::Prepare(absl::Span<const TensorSpec>) const {
  return absl::InternalError("Prepare of a composite layer, want Lower");
}

}  // namespace ulfd::engine
