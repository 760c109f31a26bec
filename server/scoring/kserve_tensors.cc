// Numbers on the wire are little-endian, and so is every machine that this runs on.
// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/kserve_tensors.h"

#include <bit>
#include <cstdint>
#include <string>

namespace ulfd::server {

static_assert(std::endian::native == std::endian::little, "raw contents are used in place");

using engine::NumberArray;
using engine::NumberType;

TypedContents ContentsOf(NumberType type) {
  switch (type) {
    case NumberType::kBool:
      return {type, "bool_contents"};
    case NumberType::kInt8:
    case NumberType::kInt16:
    case NumberType::kInt32:
      return {NumberType::kInt32, "int_contents"};
    case NumberType::kUint8:
    case NumberType::kUint16:
    case NumberType::kUint32:
      return {NumberType::kUint32, "uint_contents"};
    case NumberType::kInt64:
      return {type, "int64_contents"};
    case NumberType::kUint64:
      return {type, "uint64_contents"};
    case NumberType::kFloat32:
      return {type, "fp32_contents"};
    case NumberType::kFloat64:
      return {type, "fp64_contents"};
    case NumberType::kFloat16:
    case NumberType::kBfloat16:
      break;
  }
  return {type, ""};
}

NumberArray NumbersIn(const inference::InferTensorContents& contents) {
  const auto row = [](NumberType type, const auto& values) -> NumberArray {
    return {type, {values.size()}, values.data()};
  };
  if (!contents.int64_contents().empty()) {
    return row(NumberType::kInt64, contents.int64_contents());
  }
  if (!contents.int_contents().empty()) return row(NumberType::kInt32, contents.int_contents());
  if (!contents.uint_contents().empty()) return row(NumberType::kUint32, contents.uint_contents());
  if (!contents.uint64_contents().empty()) {
    return row(NumberType::kUint64, contents.uint64_contents());
  }
  if (!contents.fp64_contents().empty()) {
    return row(NumberType::kFloat64, contents.fp64_contents());
  }
  if (!contents.bool_contents().empty()) return row(NumberType::kBool, contents.bool_contents());
  return row(NumberType::kFloat32, contents.fp32_contents());
}

NumberArray NumbersIn(const inference::ModelInferRequest& request, int input) {
  if (input >= request.raw_input_contents_size()) {
    return NumbersIn(request.inputs(input).contents());
  }
  // Any other datatype is refused when it is decoded.
  const NumberType type =
      engine::TypeOfKserve(request.inputs(input).datatype()).value_or(NumberType::kInt64);
  const std::string& raw = request.raw_input_contents(input);
  return {type, {static_cast<int64_t>(raw.size() / engine::SizeOf(type))}, raw.data()};
}

absl::string_view DatatypeName(engine::DType dtype) {
  return engine::KserveName(engine::TypeOf(dtype));
}

}  // namespace ulfd::server
