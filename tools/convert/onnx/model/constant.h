// Constants of an ONNX graph, and the operators that make new ones of them: initializers, and the
// chains of Shape, Gather, Concat, Equal, Where that exporters write for a view() or expand().
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_CONSTANT_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_CONSTANT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/tensor/tensor.h"
#include "onnx/onnx_pb.h"

namespace ulfd::convert {

using Dims = std::vector<engine::Dim>;

// A tensor whose values are known.  Integers and booleans (0, 1) may be sizes that are known only
// by name: multiples of the users or ads of a request.  Floats are numbers.
struct Constant {
  bool is_float = false;
  Dims dims;  // Symbolic only where `uniform`.
  // All elements are the one that is stored.
  bool uniform = false;
  std::vector<engine::Dim> ints;                     // !is_float
  std::shared_ptr<const std::vector<float>> floats;  // is_float

  // REQUIRES: dims are numbers.
  std::vector<int64_t> sizes() const;
  int64_t elements() const;
  float f32(int64_t i) const { return (*floats)[uniform ? 0 : static_cast<size_t>(i)]; }
  const engine::Dim& dim(int64_t i) const { return ints[uniform ? 0 : static_cast<size_t>(i)]; }
  // The element as a float, of any type.  REQUIRES: it is a number.
  float number(int64_t i) const { return is_float ? f32(i) : static_cast<float>(dim(i).value()); }
  // Values as floats; integers must be numbers.  Errors as WantNumbers.
  absl::StatusOr<std::vector<float>> ToFloats() const;
  // The values as numbers.  INVALID_ARGUMENT names the first that is not one.
  absl::StatusOr<std::vector<int64_t>> ToInts() const;
  // The values as a shape.  INVALID_ARGUMENT unless it is a vector of at most 64 integers
  // that make at most kMaxRowElements elements (per row).
  absl::StatusOr<Dims> ToDims() const;
};

// Constants of the graph are computed up to this size.
inline constexpr int64_t kMaxElements = int64_t{1} << 28;
// ULF states sizes of tensors in 31 bits.
inline constexpr int64_t kMaxRowElements = (int64_t{1} << 31) - 1;

bool IsNumbers(const Dims& dims);
// A tensor without elements; its other dimensions may depend on the request.
Constant EmptyConstant(Dims dims);
bool IsEmpty(const Constant& c);
// INVALID_ARGUMENT unless the dimensions are numbers and make at most kMaxElements elements.
absl::Status WantNumbers(const Constant& c);

// UNIMPLEMENTED unless rows [ids, ...] can be looked up in it: numbers that single precision has.
absl::Status WantTable(const Constant& c);

Constant FloatConstant(const std::vector<int64_t>& sizes, std::vector<float> values);
Constant IntConstant(const std::vector<int64_t>& sizes, std::vector<engine::Dim> values);

// Bytes of the elements.  INVALID_ARGUMENT for a type that is no number, a negative or too large
// dimension.
absl::StatusOr<int64_t> TensorBytes(const onnx::TensorProto& tensor);
// INVALID_ARGUMENT unless its raw data has as many.
absl::Status CheckRawData(const onnx::TensorProto& tensor);
// All floats become single ones; all integers and bool become integers, below 2^63.
absl::StatusOr<Constant> ReadTensor(const onnx::TensorProto& tensor);

// Attributes of a node, with the operator's defaults.
int64_t IntAttribute(const onnx::NodeProto& node, const char* name, int64_t otherwise);
float FloatAttribute(const onnx::NodeProto& node, const char* name, float otherwise);
std::string StringAttribute(const onnx::NodeProto& node, const char* name, const char* otherwise);
std::vector<int64_t> IntsAttribute(const onnx::NodeProto& node, const char* name);
std::vector<float> FloatsAttribute(const onnx::NodeProto& node, const char* name);
// Null: the node has none.
const onnx::AttributeProto* FindAttribute(const onnx::NodeProto& node, absl::string_view name);

// Computes the outputs (of Dropout, the first) of a node whose inputs are all constants (null: an
// input that is left out).  UNIMPLEMENTED if the operator is none of those that are folded;
// INVALID_ARGUMENT if it cannot be computed from what is known.
absl::StatusOr<std::vector<Constant>> FoldNode(const onnx::NodeProto& node, int64_t opset,
                                               absl::Span<const Constant* const> inputs);
// Whether FoldNode knows the operator.
bool CanFold(const onnx::NodeProto& node);

// axis + rank if negative.  INVALID_ARGUMENT unless it is within [0, rank).
absl::StatusOr<int> WantAxis(int64_t axis, int64_t rank);
// The same for several; rising, none twice.
absl::StatusOr<std::vector<int>> WantAxes(const std::vector<int64_t>& axes, int64_t rank);
// What Slice takes of a dimension of `size`.
struct SliceRange {
  int64_t begin = 0, step = 1, count = 0;
};
// INVALID_ARGUMENT for a step of 0.
absl::StatusOr<SliceRange> RangeOf(int64_t start, int64_t end, int64_t step, int64_t size);
// What each of Split's outputs has of a dimension of `size`: as stated, or equal parts of which the
// last may be smaller where none is stated.  INVALID_ARGUMENT unless they fill it.
absl::StatusOr<std::vector<int64_t>> SplitSizes(std::vector<int64_t> stated, int64_t outputs,
                                                int64_t size);
// UNIMPLEMENTED, and what to do: the model has a number where the request's rows are to be.
absl::Status ExampleRows(absl::string_view what);
// numpy broadcasting.  INVALID_ARGUMENT names both; UNIMPLEMENTED as ExampleRows.
absl::StatusOr<Dims> BroadcastDims(const Dims& a, const Dims& b);
// Beside rows of the ads the user's is a dimension of 1.
Dims OneUserBesideAds(Dims dims);
std::string DimsText(const Dims& dims);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_CONSTANT_H_
