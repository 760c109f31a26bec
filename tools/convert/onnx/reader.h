// ONNX files: read, completed with their external data, checked by ONNX's own checker and shape
// inference.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_READER_H_
#define ULFD_TOOLS_CONVERT_ONNX_READER_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/convert/convert.h"
#include "tools/convert/onnx/model/onnx_model.h"

namespace ulfd::convert {

// Reads `path`, gives the symbolic dimensions in `dims` their numbers and the leading ones of
// `ad_inputs` a name, or all of them where they and those of the outputs are one number above 1,
// and checks the model.  Inputs whose rows are elsewhere, or who have none, get them in front
// (rows_in_front.h).  Outputs that are strings are left out.
// INVALID_ARGUMENT for:
// - a truncated file; a graph without order;
// - an initializer whose external data is missing, outside the model's directory, or of another
//   size than its shape;
// - a model newer than operator set 21 or format 11;
// - a name that is made twice, or read before it is made;
// - a name of `dims` that no input has.
// RESOURCE_EXHAUSTED for a file above 2 GiB, protobuf's limit.
absl::StatusOr<OnnxModel> ReadOnnx(const std::string& path, const ConvertOptions& options);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_READER_H_
