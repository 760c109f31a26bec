// What ONNX's Resize and Upsample compute along an axis: each output is a weighted sum of inputs.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_OPERATORS_RESIZE_H_
#define ULFD_TOOLS_CONVERT_ONNX_OPERATORS_RESIZE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace ulfd::convert {

// One axis: output i = bias[i] + sum over k of weight[k * to + i] * input k.
struct ResizedAxis {
  int64_t from = 0, to = 0;
  std::vector<double> weight, bias;

  bool IsIdentity() const;
};

// What a node asks for, with sizes that its inputs state.
struct ResizeRequest {
  std::vector<float> roi, scales;  // Empty: not stated.
  std::vector<int64_t> sizes;      // Empty: not stated.
};

// Axis `axis` of an input of this rank, of size `from`.  UNIMPLEMENTED where runtimes differ, or
// for attributes that are not known; INVALID_ARGUMENT where the request does not fit.
absl::StatusOr<ResizedAxis> ResizeAxis(const onnx::NodeProto& node, int64_t opset,
                                       const ResizeRequest& request, int axis, int rank,
                                       int64_t from);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_OPERATORS_RESIZE_H_
