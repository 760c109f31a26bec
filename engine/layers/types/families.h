// The tables of layer types, one per family; registry.cc lists them, so the linker keeps them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_TYPES_FAMILIES_H_
#define ULFD_ENGINE_LAYERS_TYPES_FAMILIES_H_

#include "absl/types/span.h"
#include "engine/layers/layer.h"

namespace ulfd::engine {

absl::Span<const LayerType> ActivationLayers();   // activation.cc: relu sigmoid tanh softmax
absl::Span<const LayerType> ArithmeticLayers();   // arithmetic.cc: add sub multiply div where sum
absl::Span<const LayerType> MatmulLayers();       // matmul.cc: inner_product inner_product_layer_ex
absl::Span<const LayerType> BatchDotLayers();     // batchdot.cc: batchdot
absl::Span<const LayerType> EmbeddingLayers();    // embedding.cc: embedding
absl::Span<const LayerType> CyclicLayers();       // cyclic.cc: prelu dice bn
absl::Span<const LayerType> RecurrentLayers();    // recurrent.cc: gru, lstm, rnn
absl::Span<const LayerType> ShapeLayers();        // shape.cc: reshape concat slice broadcast_to
absl::Span<const LayerType> SourceLayers();       // source.cc: constant fuse
absl::Span<const LayerType> ExpressionLayers();   // expression_layer.cc: expression
absl::Span<const LayerType> ConvolutionLayers();  // convolution.cc: convolution
absl::Span<const LayerType> PoolingLayers();      // image_pooling.cc: max_pooling
absl::Span<const LayerType> RearrangeLayers();    // rearrange.cc: transpose reverse reorg shuffle
absl::Span<const LayerType> UpsampleLayers();     // upsample.cc: upsample
absl::Span<const LayerType> NormalizeLayers();    // normalize.cc: layer_norm normalize
absl::Span<const LayerType> DetectionLayers();    // detection.cc: yolo prior_box
absl::Span<const LayerType> ChoiceLayers();       // choice.cc: top_k take
absl::Span<const LayerType> SamplingLayers();     // sampling.cc: roi_align spatial_transformer
absl::Span<const LayerType> TreeLayers();         // trees.cc: trees

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_TYPES_FAMILIES_H_
