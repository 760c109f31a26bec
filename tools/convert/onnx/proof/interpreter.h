// A plain interpreter of ONNX graphs, to prove conversions with: it reads the model as it was
// exported and shares nothing with the converter but the reader of tensors, so that an error of the
// converter does not repeat itself here.  One loop per operator; slow, and meant to be.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_PROOF_INTERPRETER_H_
#define ULFD_TOOLS_CONVERT_ONNX_PROOF_INTERPRETER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "onnx/onnx_pb.h"
#include "tools/convert/onnx/model/onnx_model.h"

namespace ulfd::convert::reference {

using Sizes = std::vector<int64_t>;

// A tensor with values.  Floats are held in double, half precision counts as FLOAT; integers and
// booleans (0, 1) in int64.
struct Array {
  int type = onnx::TensorProto::FLOAT;
  Sizes dims;
  std::shared_ptr<const std::vector<double>> floats;
  std::shared_ptr<const std::vector<int64_t>> ints;
  // An initializer that nothing has computed with yet, as the file has it.
  std::shared_ptr<const std::vector<float>> stored;

  bool is_float() const {
    return type == onnx::TensorProto::FLOAT || type == onnx::TensorProto::DOUBLE;
  }
  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t elements() const;
  // The element as a number, whatever the type.
  double at(int64_t i) const;
};

// What a run may take.
struct Budget {
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  int64_t max_elements = int64_t{1} << 26;  // Of one tensor.
  int64_t max_live = int64_t{1} << 28;      // Of all tensors at a time, initializers aside.

  // RESOURCE_EXHAUSTED past the deadline.
  absl::Status Check() const;
};

struct RunOptions {
  // Rounds every float to single precision, as a runtime does; false: everything in double, to see
  // what rounding makes of this model.
  bool single = true;
  // Keeps every value, not only the outputs.
  bool keep_all = false;
  Budget budget;
};

// Immutable after Make; borrows the model.
class Evaluator {
 public:
  static absl::StatusOr<Evaluator> Make(const OnnxModel& model);

  // The outputs (or everything) by name.  UNIMPLEMENTED names an operator that is not known here;
  // INVALID_ARGUMENT a node that its inputs do not fit; RESOURCE_EXHAUSTED for what exceeds the
  // budget.
  absl::StatusOr<std::map<std::string, Array>> Run(const std::map<std::string, Array>& inputs,
                                                   const RunOptions& options) const;

 private:
  explicit Evaluator(const OnnxModel& model) : model_(&model) {}

  // The value of that name; null: there is none.
  using Find = std::function<const Array*(const std::string& name)>;
  // Values of a graph's own before those around it; borrows both.
  static Find Within(const std::map<std::string, Array>& own, const Find& outer);
  absl::StatusOr<std::map<std::string, Array>> RunGraph(const onnx::GraphProto& graph,
                                                        const Find& outer,
                                                        const RunOptions& options) const;
  absl::StatusOr<std::vector<Array>> RunBranch(const onnx::NodeProto& node, const Find& outer,
                                               const RunOptions& options) const;
  absl::StatusOr<std::vector<Array>> RunLoop(const onnx::NodeProto& node, const Find& outer,
                                             const RunOptions& options) const;

  const OnnxModel* model_;
  HashMap<std::string, Array> initializers_;
};

absl::StatusOr<Array> ReadArray(const onnx::TensorProto& tensor);
// Whether the operator is known here.
bool IsKnown(const onnx::NodeProto& node);
// The outputs of one node on its own; null: an input that is left out.  Errors as Run's.
absl::StatusOr<std::vector<Array>> Compute(const onnx::NodeProto& node, int64_t opset,
                                           const RunOptions& options,
                                           std::vector<const Array*> inputs);

// ------------------------------------------------------------------- for the operators' own files

// Errors that made-up inputs may cause; the latter of what is no number.
inline constexpr char kDividedByZero[] = "an integer is divided by 0";
inline constexpr char kNoInteger[] = " is cast to an integer";
// Whether other inputs might not cause it.
bool IsOfValues(const absl::Status& status);

// A node with its inputs (null: left out).
struct Call {
  const onnx::NodeProto& node;
  int64_t opset;
  const RunOptions& options;
  std::vector<const Array*> in;

  bool Has(size_t i) const { return i < in.size() && in[i] != nullptr; }
  // A float as the type holds it in this run.
  double Round(int type, double value) const {
    const bool cut = options.single && type == onnx::TensorProto::FLOAT;
    return cut ? static_cast<double>(static_cast<float>(value)) : value;
  }
};
using Results = absl::StatusOr<std::vector<Array>>;
struct Operator {
  const char* op;
  size_t inputs;  // At least.
  Results (*run)(const Call& call);
};
absl::Span<const Operator> ElementwiseOperators();
absl::Span<const Operator> MovementOperators();
absl::Span<const Operator> ProductOperators();
absl::Span<const Operator> AxisOperators();
absl::Span<const Operator> ImageOperators();
absl::Span<const Operator> SelectOperators();
absl::Span<const Operator> RecurrentOperators();
absl::Span<const Operator> TreeOperators();

Array Floats(int type, Sizes dims, std::vector<double> values);
Array Ints(int type, Sizes dims, std::vector<int64_t> values);
// One output.
inline Results One(Array array) { return std::vector<Array>{std::move(array)}; }
// The values as doubles, whatever the type.
std::vector<double> ValuesOf(const Array& array);
// FLOAT, DOUBLE and the two halves.
bool IsFloatType(int type);
// An integer as the type holds it.
int64_t Wrap(int type, int64_t value);
// Elements of such a tensor.  INVALID_ARGUMENT for a negative size, RESOURCE_EXHAUSTED for more
// than the budget has.
absl::StatusOr<int64_t> CountOf(const Call& call, const Sizes& dims);
// Of the dimensions from `from` on, up to `to`.
int64_t ProductOf(const Sizes& dims, size_t from = 0, size_t to = SIZE_MAX);
Sizes StridesOf(const Sizes& dims);
// The next place in `dims`, the last one counting fastest; behind the last place comes the first.
void Step(const Sizes& dims, Sizes& at);
// Strides of `from` for each axis of `to`, 0 where it is repeated.
Sizes BroadcastStrides(const Sizes& from, const Sizes& to);
absl::StatusOr<Sizes> BroadcastSizes(const Sizes& a, const Sizes& b);
// The axis from the front.
absl::StatusOr<size_t> AxisOf(int64_t axis, int64_t rank);
// Integers from input `input`, or else from the attribute.
absl::StatusOr<Sizes> ListOf(const Call& call, size_t input, const char* attribute);
// INVALID_ARGUMENT with the shapes of all inputs.
absl::Status Misfit(const Call& call, absl::string_view what);
// UNIMPLEMENTED if an input is of integers.
absl::Status WantFloats(const Call& call);
// Element `from[i]` of `x` for every i.
Array Pick(const Array& x, Sizes dims, const std::vector<int64_t>& from);
// Elements of tensors of one type, one behind the other, as a tensor.
class Elements {
 public:
  Elements(int type, int64_t count);
  void Add(const Array& x, int64_t i);
  Array Take(Sizes dims);

 private:
  const int type_;
  std::vector<double> floats_;
  std::vector<int64_t> ints_;
};

// Calls fn(offsets) for every element of `dims` in order; offsets[k] is the place under strides[k].
template <size_t N, typename Fn>
void Walk(const Sizes& dims, const Sizes (&strides)[N], Fn fn) {
  int64_t left = 1;
  for (const int64_t d : dims) left *= d;
  Sizes at(dims.size(), 0);
  int64_t offsets[N] = {};
  while (left-- > 0) {
    fn(static_cast<const int64_t*>(offsets));
    for (size_t d = dims.size(); d-- > 0;) {
      for (size_t k = 0; k < N; ++k) offsets[k] += strides[k][d];
      if (++at[d] < dims[d]) break;
      for (size_t k = 0; k < N; ++k) offsets[k] -= strides[k][d] * dims[d];
      at[d] = 0;
    }
  }
}

// Calls fn(offset of the first entry, distance of entries) for every line along the axis that has
// entries.
template <typename Fn>
void Lines(const Sizes& dims, size_t axis, Fn fn) {
  if (dims[axis] == 0) return;
  Sizes outer = dims;
  const Sizes strides[] = {StridesOf(dims)};
  outer[axis] = 1;
  Walk(outer, strides, [&](const int64_t* at) { fn(at[0], strides[0][axis]); });
}

}  // namespace ulfd::convert::reference

#endif  // ULFD_TOOLS_CONVERT_ONNX_PROOF_INTERPRETER_H_
