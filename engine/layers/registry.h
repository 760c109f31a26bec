// Every layer type that the engine knows, and the checks that all of them share.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_REGISTRY_H_
#define ULFD_ENGINE_LAYERS_REGISTRY_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/layers/layer.h"

namespace ulfd::engine {

// All rows, sorted by name.  input_layer is not among them: it is part of the graph, not a
// computation.
const std::vector<const LayerType*>& AllLayerTypes();

// The row of `type`.  Accepts the layer guide's spellings rehshape_layer and reduce_layer and adds
// a notice.  Errors: an unknown type (the text names the nearest known one),
// multiply_concat_sum_layer (no published definition).
// `more`: further types, of plug-ins.
absl::StatusOr<const LayerType*> FindLayerType(absl::string_view type, Notices& notices,
                                               absl::Span<const LayerType* const> more = {});

// FindLayerType, then the checks common to all types (number of bottoms, tops and weights; no
// *_param message of another type), then the type's Parse.  Errors do not name the layer: the
// caller does.
absl::StatusOr<std::unique_ptr<Layer>> ParseLayer(const ParseContext& ctx);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_REGISTRY_H_
