// ONNX files: read, completed with their external data, checked by ONNX's own checker and shape
// inference.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_READER_H_
#define ULFD_TOOLS_CONVERT_ONNX_READER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/convert/onnx/model/onnx_model.h"

namespace ulfd::convert {

// Reads `path`, gives the symbolic dimensions in `dims` their numbers and the leading ones of
// `ad_inputs` a name, and checks the model.
// INVALID_ARGUMENT for:
// - a truncated file; a graph without order;
// - an initializer whose external data is missing, outside the model's directory, or of another
//   size than its shape;
// - a model newer than operator set 21 or format 11;
// - a name that is made twice, or read before it is made;
// - a name of `dims` that no input has.
// RESOURCE_EXHAUSTED for a file above 2 GiB, protobuf's limit.
absl::StatusOr<OnnxModel> ReadOnnx(const std::string& path,
                                   const std::map<std::string, int64_t>& dims,
                                   const std::vector<std::string>& ad_inputs);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_READER_H_
