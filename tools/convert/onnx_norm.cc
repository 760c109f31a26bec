// ONNX's operators along an axis: Softmax, sums and means, BatchNormalization.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "tools/convert/onnx_graph.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

absl::Status WantNoRows(const OnnxValue& x, int axis) {
  if (x.dims[axis].IsConst()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("runs along axis ", axis, " of shape ",
                                               DimsText(x.dims), ", across rows of the request"));
}

absl::Status Softmax(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  const bool flattens = node.graph.opset() < 13;
  ASSIGN_OR_RETURN(const int axis,
                   WantAxis(IntAttribute(node.node, "axis", flattens ? 1 : -1), x.rank()));
  // Before operator set 13 everything from the axis on was one dimension.
  if (flattens && axis + 1 != x.rank()) {
    return absl::UnimplementedError(
        absl::StrCat("axis ", axis, " of an operator set before 13, want the last axis"));
  }
  RETURN_IF_ERROR(WantNoRows(x, axis));
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, {axis}));
  const std::string out = node.Top();
  RETURN_IF_ERROR(AddSoftmax(node.builder(), node.name, in, axis, out));
  node.Set(out, x.dims);
  return absl::OkStatus();
}

// The axes that a reduction runs along, rising.
absl::StatusOr<std::vector<int>> ReducedAxes(const OnnxNode& node, int rank) {
  std::vector<int64_t> stated = IntsAttribute(node.node, "axes");
  if (node.Has(1)) {
    if (node.constant(1) == nullptr) return absl::UnimplementedError("axes that are computed");
    ASSIGN_OR_RETURN(stated, node.constant(1)->ToInts());
  }
  if (stated.empty() && IntAttribute(node.node, "noop_with_empty_axes", 0) == 0) {
    for (int i = 0; i < rank; ++i) stated.push_back(i);
  }
  std::vector<int> axes;
  for (const int64_t axis : stated) {
    ASSIGN_OR_RETURN(const int index, WantAxis(axis, rank));
    axes.push_back(index);
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

// sum_layer per axis, from the last to the first; a mean is divided by the count at the end.
absl::Status Reduce(OnnxNode& node, bool mean) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const std::vector<int> axes, ReducedAxes(node, x.rank()));
  OnnxValue y = x;
  int64_t count = 1;
  for (const int axis : axes) {
    RETURN_IF_ERROR(WantNoRows(x, axis));
    count *= x.dims[axis].value();
  }
  ASSIGN_OR_RETURN(std::string tensor, node.graph.PlainAlong(x, axes));
  GraphBuilder& builder = node.builder();
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const bool last = axis + 1 == axes.rend() && !mean;
    const std::string out = last ? node.Top() : node.Scratch("sum");
    ulf::LayerParameter layer = MakeLayer("sum_layer", last ? node.name : out, {tensor}, out);
    layer.mutable_sum_param()->add_dim(*axis);
    RETURN_IF_ERROR(builder.AddLayer(std::move(layer)));
    tensor = out;
    y.dims.erase(y.dims.begin() + *axis);
  }
  if (mean) {
    const std::string factor = node.Scratch("factor"), out = node.Top();
    RETURN_IF_ERROR(
        AddConstant(builder, factor,
                    MakeBlob({1}, {static_cast<float>(1.0 / static_cast<double>(count))}), factor));
    RETURN_IF_ERROR(AddPlain(builder, "multiply_layer", node.name, {tensor, factor}, out));
    tensor = out;
  }
  y = node.graph.Whole(tensor, y.dims);
  if (IntAttribute(node.node, "keepdims", 1) != 0) {
    for (const int axis : axes) {
      y.dims.insert(y.dims.begin() + axis, Dim::Of(1));
      y.axes.insert(y.axes.begin() + axis, -1);
    }
  }
  node.Set(y);
  return absl::OkStatus();
}

absl::Status ReduceSum(OnnxNode& node) { return Reduce(node, false); }
absl::Status ReduceMean(OnnxNode& node) { return Reduce(node, true); }

absl::Status BatchNormalization(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  if (IntAttribute(node.node, "training_mode", 0) != 0) {
    return absl::UnimplementedError("training_mode 1: statistics of a request's own rows");
  }
  ChannelNorm norm;
  norm.eps = FloatAttribute(node.node, "epsilon", 1e-5f);
  std::vector<float>* const parts[] = {&norm.gamma, &norm.beta, &norm.mean, &norm.var};
  for (int i = 0; i < 4; ++i) {
    const Constant* constant = node.constant(i + 1);
    if (constant == nullptr) return absl::UnimplementedError("parameters that are computed");
    ASSIGN_OR_RETURN(*parts[i], constant->ToFloats());
    if (x.rank() < 2 || x.dims[1] != Dim::Of(static_cast<int64_t>(parts[i]->size()))) {
      return absl::InvalidArgumentError(absl::StrCat("input ", i + 1, ": ", parts[i]->size(),
                                                     " values, want one per channel of ",
                                                     DimsText(x.dims)));
    }
  }
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, {1}));
  const std::string out = node.Top();
  RETURN_IF_ERROR(AddNorm(node.builder(), node.name, in, 1, norm, out));
  node.Set(out, x.dims);
  return absl::OkStatus();
}

constexpr OnnxType kTypes[] = {
    {"Softmax", &Softmax},
    {"ReduceSum", &ReduceSum},
    {"ReduceMean", &ReduceMean},
    {"BatchNormalization", &BatchNormalization},
};

}  // namespace

absl::Span<const OnnxType> NormOnnxTypes() { return kTypes; }

}  // namespace ulfd::convert
