// Models whose images are [rows, height, width, channels]: how a layer over images of the other
// layout stands in one.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_TYPES_NHWC_H_
#define ULFD_ENGINE_LAYERS_TYPES_NHWC_H_

#include <memory>
#include <vector>

#include "engine/layers/layer.h"

namespace ulfd::engine {

// A composite layer over NHWC images: transposes those inputs of `layer` that
// LayerType::image_inputs names, runs it, and transposes its image outputs back.  Its weights are
// those of the NCHW layer.
// REQUIRES: `type` is not composite and names an image input.
std::unique_ptr<Layer> MakeNhwc(const LayerType& type, std::shared_ptr<const Layer> layer);

// A kernel weight [kernel_h, kernel_w, channels / group, num_output] (TensorFlow's HWIO) as
// [num_output, channels / group, kernel_h, kernel_w].  The values are put into `data`, which must
// outlive the result.  InvalidArgument for another rank.
absl::StatusOr<Weight> KernelFromHwio(const Weight& weight, std::vector<float>& data);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_TYPES_NHWC_H_
