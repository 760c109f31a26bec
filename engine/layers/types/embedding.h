// The family of sparse layers: embedding_layer.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_TYPES_EMBEDDING_H_
#define ULFD_ENGINE_LAYERS_TYPES_EMBEDDING_H_

#include "absl/types/span.h"
#include "engine/layers/layer.h"

namespace ulfd::engine {

absl::Span<const LayerType> EmbeddingLayers();

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_TYPES_EMBEDDING_H_
