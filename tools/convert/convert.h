// Caffe and ONNX models turned into ULF version directories.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_CONVERT_H_
#define ULFD_TOOLS_CONVERT_CONVERT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/convert/report.h"

namespace ulfd::convert {

struct ConvertOptions {
  // Inputs whose single row belongs to the user, and inputs with a row per ad.  What neither lists
  // is told from the model (ONNX: by the name of the leading dimension; Caffe: all belong to the
  // ads).  A name that the model lacks is an error.
  std::vector<std::string> user_inputs, ad_inputs;
  // ONNX: numbers for symbolic dimensions, by name, such as a history's length.
  std::map<std::string, int64_t> dims;
  // ONNX: a file that names the columns of the model's one matrix (schema.h); empty: none.
  std::string schema;
  // ONNX: compares the result with the model, on made-up inputs, before it is written.
  bool verify = true;
};

// Converts a Caffe net (text or binary NetParameter) with its weights (empty: the net needs none)
// into the new version directory `out`.  UNIMPLEMENTED lists every node that cannot be converted;
// INVALID_ARGUMENT tells where the input contradicts itself.  On any error nothing is written.
absl::StatusOr<Report> ConvertCaffe(const std::string& net, const std::string& weights,
                                    const std::string& out, const ConvertOptions& options);

// The same for an ONNX model; external data is looked up beside it.  FAILED_PRECONDITION if what
// was converted gives other values than the model.
absl::StatusOr<Report> ConvertOnnx(const std::string& model, const std::string& out,
                                   const ConvertOptions& options);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_CONVERT_H_
