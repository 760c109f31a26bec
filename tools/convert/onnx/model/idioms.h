// Several operators that amount to one, written by that one.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_IDIOMS_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_IDIOMS_H_

#include <cstdint>

#include "onnx/onnx_pb.h"

namespace ulfd::convert {

// Replaces what models compute by hand though ONNX has an operator for it, so that it is optimised
// as that: sigmoids, softmaxes and softplus made of exponentials; Relu, LeakyRelu and PRelu made of
// whatever is linear on either side of 0; sums and products with what is negated or inverted; Where
// of Not; Concat of Concat; Einsum that is a sum or a product with a matrix; products that are
// transposed.  Parts that are read elsewhere stay.
void ReadIdioms(onnx::GraphProto& graph, int64_t opset);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_IDIOMS_H_
