// Operators of ONNX Runtime's optimiser, of scikit-learn's exporters, of quantised models and of
// new operator sets, written by others.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_COMPOSITES_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_COMPOSITES_H_

#include <cstdint>
#include <string>

#include "onnx/onnx_pb.h"

namespace ulfd::convert {

// Replaces what it knows of com.microsoft (fused operators), ai.onnx.ml (linear models and what
// prepares their inputs), quantised weights and activations (as whole numbers in single precision),
// and others.  What has inputs or attributes that are not known stays as it is.
void WriteComposites(onnx::GraphProto& graph, int64_t opset);

// Why such an operator is not converted, and what to do.
std::string WhyNot(const onnx::NodeProto& node);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_COMPOSITES_H_
