// Several operators that amount to one, written by that one.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_IDIOMS_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_IDIOMS_H_

#include <cstdint>

#include "onnx/onnx_pb.h"

namespace ulfd::convert {

// Replaces what models compute by hand though ONNX has an operator for it, so that it is optimised
// as that: sigmoids, softmaxes and softplus made of exponentials; Relu made of Max, of Where or of
// a product with x > 0; sums and products with what is negated or inverted; Where of Not; Concat of
// Concat; Einsum that is a sum or a product with a matrix; products that are transposed.  What the
// parts are read for elsewhere stays.
void ReadIdioms(onnx::GraphProto& graph, int64_t opset);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_IDIOMS_H_
