// The numbers of KServe's tensors as they came, raw or typed.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_KSERVE_TENSORS_H_
#define ULFD_SERVER_SCORING_KSERVE_TENSORS_H_

#include "absl/strings/string_view.h"
#include "engine/tensor/numbers.h"
#include "engine/tensor/tensor.h"
#include "proto/open_inference.pb.h"

namespace ulfd::server {

// What typed contents of a type are: that type or a wider one, in that field; "" for those that are
// raw alone.
struct TypedContents {
  engine::NumberType type;
  absl::string_view field;
};
TypedContents ContentsOf(engine::NumberType type);

// The one field that is filled, as a row of numbers.  Borrows.
engine::NumberArray NumbersIn(const inference::InferTensorContents& contents);
// The values of an input, raw or typed, as a row of numbers, whatever its shape says.
engine::NumberArray NumbersIn(const inference::ModelInferRequest& request, int input);

// "FP32", "INT32", "INT64".
absl::string_view DatatypeName(engine::DType dtype);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_KSERVE_TENSORS_H_
