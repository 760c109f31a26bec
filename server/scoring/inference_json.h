// KServe v2 over REST: JSON bodies, with Triton's binary tensors behind them, <-> the messages of
// the gRPC protocol, which everything else works on.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_INFERENCE_JSON_H_
#define ULFD_SERVER_SCORING_INFERENCE_JSON_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/open_inference.pb.h"

namespace ulfd::server {

struct JsonLimits {
  int64_t max_fields = 200000;  // Objects, members and strings; then RESOURCE_EXHAUSTED.
};

// Which outputs the client wants as bytes behind the JSON.
struct BinaryOutputs {
  bool all = false;
  std::set<std::string> names;
  bool Has(const std::string& name) const { return all || names.contains(name); }
};

// Reads the body of an infer request; model and version are not in it.  `json_bytes` of it are
// JSON, the rest are the bytes of inputs with the parameter "binary_data_size", in their order.
// INVALID_ARGUMENT says where ("inputs[2].data: ...", "JSON: ... line 3, column 7: ...").  Numbers
// of a datatype that no input has are left out: the decoder refuses the datatype.
absl::Status ParseInferBody(absl::string_view body, size_t json_bytes, const JsonLimits& limits,
                            inference::ModelInferRequest& request, BinaryOutputs& binary);

// The body of a reply, of which the first `json_bytes` are JSON; all of it if nothing is binary.
struct InferBody {
  std::string text;
  size_t json_bytes = 0;
};
// FAILED_PRECONDITION: a NaN or an infinity, which JSON cannot say.
absl::StatusOr<InferBody> WriteInferBody(const inference::ModelInferResponse& response,
                                         const BinaryOutputs& binary);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_INFERENCE_JSON_H_
