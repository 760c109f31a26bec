// Batch normalisation and dice as building blocks of graph passes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_TYPES_CYCLIC_H_
#define ULFD_ENGINE_LAYERS_TYPES_CYCLIC_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/layers/layer.h"

namespace ulfd::engine {

// y = (x - mean) * scale + beta, computed in this order; a bn_layer of gamma `scale`, variance 1
// and eps 0.  The vectors are copied; they repeat along the flattened x.  INVALID_ARGUMENT if one
// is empty.
absl::StatusOr<std::unique_ptr<Layer>> MakeBatchNorm(absl::Span<const float> mean,
                                                     absl::Span<const float> scale,
                                                     absl::Span<const float> beta);
// y = p * x + (1 - p) * gamma * x with p = sigmoid((x - mean) / sqrt(var)); as above.
absl::StatusOr<std::unique_ptr<Layer>> MakeDice(absl::Span<const float> gamma,
                                                absl::Span<const float> mean,
                                                absl::Span<const float> var);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_TYPES_CYCLIC_H_
