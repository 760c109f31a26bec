// What converters of several operators add alike.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_OPERATORS_LAYERS_H_
#define ULFD_TOOLS_CONVERT_ONNX_OPERATORS_LAYERS_H_

#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/convert/onnx/model/graph.h"

namespace ulfd::convert {

// UNIMPLEMENTED where what cuts along the axis would cut rows of the request.
absl::Status WantNumber(const OnnxValue& x, int axis);
// UNIMPLEMENTED where the axis runs across rows of the request.
absl::Status WantNoRows(const OnnxValue& x, int axis);
// The axis that holds the rows; layers that choose want it in front.
int RowAxis(const Dims& dims);
// The view with a further axis of 1 in this place.
OnnxValue WithAxis(OnnxValue x, int axis);
// The view without the axis.
OnnxValue WithoutAxis(OnnxValue x, int axis);
// So many axes of one in front, as a batch of one user is: layers do without them.
OnnxValue WithFront(OnnxValue x, int count);
OnnxValue WithoutFront(OnnxValue x, int count);

// Each adds a layer for something in between that is called `what`, and returns its tensor.
absl::StatusOr<std::string> Computed(OnnxNode& node, absl::string_view what,
                                     absl::string_view expression,
                                     absl::Span<const std::string> in);
absl::StatusOr<std::string> Squared(OnnxNode& node, const std::string& in);
// `sizes` as in ulf.ReshapeParameter.
absl::StatusOr<std::string> Sized(OnnxNode& node, absl::string_view what, const std::string& in,
                                  absl::Span<const int64_t> sizes);
absl::StatusOr<std::string> CutOut(OnnxNode& node, absl::string_view what, const std::string& in,
                                   int axis, int64_t begin, int64_t length);
absl::StatusOr<std::string> Joined(OnnxNode& node, absl::string_view what,
                                   absl::Span<const std::string> in, int axis);
// The node's output is the expression, of these dimensions.
absl::Status SetComputed(OnnxNode& node, absl::string_view expression,
                         absl::Span<const std::string> in, const Dims& dims);
// The axis of the ads' rows if all in front of it is 1: the elements are in the same order with the
// rows in front, where layers want them.  0: it is in front, or not so.
int AdsAxis(const Dims& dims);
// The axes of a value that repeats none, as its tensor has them, where the rows are in front there
// (and behind them axes of 1 that it lacks); of others, with AdsAxis in front.  Empty: in order.
std::vector<int> TensorOrder(const OnnxGraph& graph, const OnnxValue& x);
// The view whose axis i is axis order[i] of x.
OnnxValue Reordered(const OnnxValue& x, const std::vector<int>& order);
std::vector<int> Inverse(const std::vector<int>& order);

// sum_layer, or another of its functions, per axis (rising), from the last to the first; the last
// one is called `name` and makes `out`.  Where no axis is left, the result has one of 1.
absl::StatusOr<std::string> ReduceAlong(OnnxNode& node, std::string tensor,
                                        const std::vector<int>& axes, const std::string& name,
                                        const std::string& out,
                                        ulf::SumParameter::Function function);
inline absl::StatusOr<std::string> SumAlong(OnnxNode& node, std::string tensor,
                                            const std::vector<int>& axes, const std::string& name,
                                            const std::string& out) {
  return ReduceAlong(node, std::move(tensor), axes, name, out, ulf::SumParameter::SUM);
}
// What a reduction of `dims` along the axes (rising) made: `tensor`, with dimensions of 1 in their
// place.
OnnxValue Reduced(OnnxNode& node, const std::string& tensor, Dims dims,
                  const std::vector<int>& axes);
// The node's layers: a function of sum_layer along these axes, which stay as dimensions of 1.
absl::StatusOr<OnnxValue> ReduceAxes(OnnxNode& node, OnnxValue x, std::vector<int> axes,
                                     ulf::SumParameter::Function function);
// The entries of the axes of `dims`, as a tensor [1] or, where they are a number, as that.
struct Count {
  double number = 1;
  std::string rows;  // Times this; empty: nothing.
};
absl::StatusOr<Count> CountAlong(OnnxNode& node, const Dims& dims, const std::vector<int>& axes);
// For the report, where the axes run across rows.
void NoteRows(OnnxNode& node, const Dims& dims, const std::vector<int>& axes);
// 0, 1, ... along an axis that `behind` others follow.
absl::StatusOr<std::string> AddPlaces(OnnxNode& node, int64_t count, int behind);

// Sets the node's output: the same elements under other dimensions.
absl::Status ReshapeTo(OnnxNode& node, const OnnxValue& x, Dims to);
// The same elements as a tensor of these dimensions.
absl::StatusOr<OnnxValue> Reshaped(OnnxNode& node, const OnnxValue& x, Dims dims);
// Of rows that an axis holds merged with others, [.., ads * k, ..]: [.., ads, k, ..].
absl::StatusOr<OnnxValue> SplitMergedRows(OnnxNode& node, const OnnxValue& x, int axis);
// Where an input has rows of the ads merged with others, ads * k, those that are the user's,
// users * k, are repeated for every ad.
absl::Status RepeatMergedRows(OnnxNode& node);

// Add of the node's inputs.
absl::Status ConvertAdd(OnnxNode& node);
// Tree ensembles of ai.onnx.ml, as regressions without a transformation: trees_layer.
absl::Status ConvertTrees(OnnxNode& node);  // trees.cc
// The discrete Fourier transform (DFT).
absl::Status ConvertFourier(OnnxNode& node);  // fourier.cc

// A weight matrix and its bias.
struct Dense {
  std::vector<float> weight;
  std::vector<int64_t> sizes;  // [k, n], or [n, k] if transposed.
  bool transposed = false;
  std::vector<float> bias;  // Empty: none.

  int64_t k() const { return sizes[transposed ? 1 : 0]; }
  int64_t n() const { return sizes[transposed ? 0 : 1]; }
};
// x [.., k] * weight + bias; x of any rank above 1.  The last layer is called `name`, its top
// `out`.
absl::StatusOr<OnnxValue> DenseOf(OnnxNode& node, const OnnxValue& x, const Dense& dense,
                                  const std::string& name, const std::string& out);
// The same; sets the node's output.
absl::Status AddDense(OnnxNode& node, const OnnxValue& x, const Dense& dense);
// The same along any axis.
absl::Status AddDenseAlong(OnnxNode& node, const OnnxValue& x, int axis, const Dense& dense);

// The place of an entry, counted from the end where it is negative.  INVALID_ARGUMENT unless there
// is one.
absl::StatusOr<int64_t> WantPlace(int64_t place, int64_t size);
// The entries of an axis at these places.
absl::StatusOr<OnnxValue> PickAlong(OnnxNode& node, const OnnxValue& x, int axis,
                                    const std::vector<int64_t>& places, const std::string& out);
// The entries of an axis from the last to the first.
absl::StatusOr<OnnxValue> Reversed(OnnxNode& node, const OnnxValue& x, int axis);
// x, index and update, with the rows in front: the node's layer, which puts entries of `update` in
// their places along an axis of x, or adds them there.
absl::StatusOr<std::string> Scattered(OnnxNode& node, std::array<OnnxValue, 3> x_index_update,
                                      int axis, bool add);
// The value with so many entries of one number before and behind those of an axis.
absl::StatusOr<OnnxValue> Padded(OnnxNode& node, const OnnxValue& x, int axis, int64_t before,
                                 int64_t behind, float fill = 0);
// Values of rank 2 with columns side by side: concat_layer, and fuse_layer where the user's row is
// beside rows of the ads, which the graph compiler turns into split matrix products.
absl::Status JoinColumns(OnnxGraph& graph, const std::vector<OnnxValue>& values,
                         const std::string& name, const std::string& out);
// Integers from input `input`, or from the attribute of older operator sets.
absl::StatusOr<std::vector<int64_t>> Integers(const OnnxNode& node, int input,
                                              const char* attribute);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_OPERATORS_LAYERS_H_
