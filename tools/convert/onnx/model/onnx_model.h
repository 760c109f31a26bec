// An ONNX model that was read and checked.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_ONNX_MODEL_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_ONNX_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace ulfd::convert {

struct OnnxModel {
  onnx::ModelProto proto;  // Without external data and functions.
  // With the shapes that ONNX infers; false for a model that its library does not take.
  bool inferred = false;
  // Rows that a mask chooses stay where they are (KeepAllRows).
  bool keeps_rows = false;
  // Inputs that had no rows, and those that had them elsewhere than in front (rows_in_front.h).
  std::vector<std::string> rowless, moved;
  int64_t opset = 0;               // Of the domain "ai.onnx".
  std::vector<std::string> notes;  // What was read otherwise than it was written.
};

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_ONNX_MODEL_H_
