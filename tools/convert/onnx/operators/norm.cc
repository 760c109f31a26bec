// ONNX's operators along an axis: Softmax, sums and means, BatchNormalization.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/graph.h"
#include "tools/convert/onnx/operators/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

// What a softmax works on.  Before operator set 13 everything from the axis on is one dimension.
struct SoftmaxInput {
  std::string tensor;
  Dims dims;  // Of the result.
  int axis = 0;
  bool flattened = false;
  int ads = 0;  // The axis of the ads' rows, which are in front here.
};

absl::StatusOr<SoftmaxInput> ReadSoftmax(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  const bool flattens = node.graph.opset() < 13;
  SoftmaxInput in;
  ASSIGN_OR_RETURN(in.axis, WantAxis(IntAttribute(node.node, "axis", flattens ? 1 : -1), x.rank()));
  if (in.axis > AdsAxis(x.dims)) in.ads = AdsAxis(x.dims);
  x = MoveAxis(std::move(x), in.ads, 0);
  in.dims = x.dims;
  in.flattened = flattens && in.axis + 1 != x.rank();
  std::vector<int> axes = {in.axis};
  while (in.flattened && axes.back() + 1 < x.rank()) axes.push_back(axes.back() + 1);
  ASSIGN_OR_RETURN(in.tensor, node.graph.PlainAlong(x, axes));
  if (!in.flattened) return in;
  RETURN_IF_ERROR(WantNoRows(x, in.axis));
  ASSIGN_OR_RETURN(const int64_t size, InnerSize(node.builder(), in.tensor, in.axis - 1));
  std::vector<int64_t> sizes(static_cast<size_t>(in.axis), 0);
  sizes.push_back(size);
  ASSIGN_OR_RETURN(in.tensor, Sized(node, "flat", in.tensor, sizes));
  return in;
}

// Where the result goes: to the output, or to what is given its shape again.
absl::Status SetSoftmax(OnnxNode& node, const SoftmaxInput& in, const std::string& out) {
  std::string shaped = out;
  if (in.flattened) {
    shaped = node.Top();
    std::vector<int64_t> sizes(static_cast<size_t>(in.axis), 0);
    for (size_t d = sizes.size(); d < in.dims.size(); ++d) sizes.push_back(in.dims[d].value());
    RETURN_IF_ERROR(AddReshape(node.builder(), shaped, out, sizes, shaped));
  }
  node.Set(MoveAxis(node.graph.Whole(shaped, in.dims), 0, in.ads));
  return absl::OkStatus();
}

absl::Status Softmax(OnnxNode& node) {
  ASSIGN_OR_RETURN(const SoftmaxInput in, ReadSoftmax(node));
  const std::string out = in.flattened ? node.Scratch("softmax") : node.Top();
  NoteRows(node, in.dims, {in.axis});
  RETURN_IF_ERROR(AddSoftmax(node.builder(), node.name, in.tensor, in.axis, out));
  return SetSoftmax(node, in, out);
}

// The axes that a reduction runs along, rising.
absl::StatusOr<std::vector<int>> ReducedAxes(const OnnxNode& node, int rank) {
  std::vector<int64_t> stated = IntsAttribute(node.node, "axes");
  if (node.Has(1)) {
    if (node.constant(1) == nullptr) return Unimplemented("axes that are computed");
    ASSIGN_OR_RETURN(stated, node.constant(1)->ToInts());
  }
  if (stated.empty() && IntAttribute(node.node, "noop_with_empty_axes", 0) == 0) {
    for (int i = 0; i < rank; ++i) stated.push_back(i);
  }
  return WantAxes(stated, rank);
}

// The mean along the axes (rising) of a tensor of shape `dims`.
absl::StatusOr<std::string> MeanAlong(OnnxNode& node, const std::string& tensor, const Dims& dims,
                                      const std::vector<int>& axes, const std::string& name,
                                      const std::string& out) {
  ASSIGN_OR_RETURN(const Count count, CountAlong(node, dims, axes));
  const std::string total = node.Scratch("total"), factor = node.Scratch("factor");
  ASSIGN_OR_RETURN(const std::string sum, SumAlong(node, tensor, axes, total, total));
  if (!count.rows.empty()) {
    RETURN_IF_ERROR(
        AddExpression(node.builder(), name,
                      absl::StrCat("@0 / (@1 * ", Number(static_cast<float>(count.number)), ")"),
                      {sum, count.rows}, out));
    return out;
  }
  RETURN_IF_ERROR(AddConstant(node.builder(), factor,
                              MakeBlob({1}, {static_cast<float>(1 / count.number)}), factor));
  RETURN_IF_ERROR(AddPlain(node.builder(), "multiply_layer", name, {sum, factor}, out));
  return out;
}

// Sets the output, without the axes unless they are kept.
void SetReduced(OnnxNode& node, OnnxValue y, const std::vector<int>& axes) {
  const bool keep = IntAttribute(node.node, "keepdims", 1) != 0;
  for (auto axis = axes.rbegin(); !keep && axis != axes.rend(); ++axis) {
    y = WithoutAxis(std::move(y), *axis);
  }
  node.Set(std::move(y));
}

// Whether there is one entry along each of the axes, which is its own sum, mean or maximum.
bool OfOneEntry(const OnnxValue& x, const std::vector<int>& axes) {
  return std::all_of(axes.begin(), axes.end(),
                     [&](int axis) { return x.dims[axis] == Dim::Of(1); });
}

// The sum, the largest or smallest entry, or the product.
template <ulf::SumParameter::Function function>
absl::Status Fold(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const std::vector<int> axes, ReducedAxes(node, x.rank()));
  NoteRows(node, x.dims, axes);
  if (!OfOneEntry(x, axes)) {
    if (function == ulf::SumParameter::SUM && node.across_rows) {
      node.graph.MarkRowSum(node.output());
    }
    ASSIGN_OR_RETURN(x, ReduceAxes(node, x, axes, function));
  }
  SetReduced(node, std::move(x), axes);
  return absl::OkStatus();
}

absl::Status LogSoftmax(OnnxNode& node) {
  ASSIGN_OR_RETURN(const SoftmaxInput in, ReadSoftmax(node));
  NoteRows(node, in.dims, {in.axis});
  const std::string out = in.flattened ? node.Scratch("softmax") : node.Top();
  RETURN_IF_ERROR(AddSoftmax(node.builder(), node.name, in.tensor, in.axis, out, /*log=*/true));
  return SetSoftmax(node, in, out);
}

absl::Status ReduceMean(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const std::vector<int> stated, ReducedAxes(node, x.rank()));
  if (OfOneEntry(x, stated)) {
    SetReduced(node, std::move(x), stated);
    return absl::OkStatus();
  }
  if (node.graph.IsInteger(node.node.input(0))) {
    return Unimplemented("of integers, whose result ONNX rounds");
  }
  const std::vector<int> order = TensorOrder(node.graph, x), back = Inverse(order);
  std::vector<int> axes = stated;
  if (!order.empty()) {
    x = Reordered(x, order);
    for (int& axis : axes) axis = back[axis];
    std::sort(axes.begin(), axes.end());
  }
  NoteRows(node, x.dims, axes);
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, axes));
  ASSIGN_OR_RETURN(const std::string mean,
                   MeanAlong(node, in, x.dims, axes, node.name, node.Top()));
  const OnnxValue y = Reduced(node, mean, x.dims, axes);
  SetReduced(node, order.empty() ? y : Reordered(y, back), stated);
  return absl::OkStatus();
}

// max + log(sum(exp(x - max))), of which an infinite max is left out.
absl::Status ReduceLogSumExp(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const std::vector<int> axes, ReducedAxes(node, x.rank()));
  NoteRows(node, x.dims, axes);
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, axes));
  const std::string best = node.Scratch("most");
  ASSIGN_OR_RETURN(std::string most,
                   ReduceAlong(node, in, axes, best, best, ulf::SumParameter::MAX));
  ASSIGN_OR_RETURN(most, node.graph.Plain(Reduced(node, most, x.dims, axes)));
  ASSIGN_OR_RETURN(most, Computed(node, "finite", "where(abs(@0) > 3.40282347e38, 0, @0)", {most}));
  ASSIGN_OR_RETURN(const std::string exps, Computed(node, "exps", "exp(@0 - @1)", {in, most}));
  const std::string total = node.Scratch("total"), out = node.Top();
  ASSIGN_OR_RETURN(const std::string sum, SumAlong(node, exps, axes, total, total));
  ASSIGN_OR_RETURN(const std::string kept, node.graph.Plain(Reduced(node, sum, x.dims, axes)));
  RETURN_IF_ERROR(AddExpression(node.builder(), node.name, "@0 + log(@1)", {most, kept}, out));
  Dims dims = x.dims;
  for (const int axis : axes) dims[axis] = Dim::Of(1);
  SetReduced(node, node.graph.Whole(out, std::move(dims)), axes);
  return absl::OkStatus();
}

bool IsCentred(const OnnxNode& node) { return node.node.op_type() != "RMSNormalization"; }

struct Normal {
  std::string centred, mean, factor;  // The last two with dimensions of 1 for the axes.
};

float EpsilonOf(const OnnxNode& node) { return FloatAttribute(node.node, "epsilon", 1e-5f); }

// (x - mean) * factor.  Root mean squares: of a mean of 0.
absl::StatusOr<Normal> NormalOf(OnnxNode& node, const OnnxValue& x, const std::vector<int>& axes) {
  NoteRows(node, x.dims, axes);
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, axes));
  const auto mean_of = [&](const std::string& of, const char* what) -> absl::StatusOr<std::string> {
    const std::string name = node.Scratch(what);
    ASSIGN_OR_RETURN(const std::string mean, MeanAlong(node, of, x.dims, axes, name, name));
    return node.graph.Plain(Reduced(node, mean, x.dims, axes));
  };
  Normal normal{.centred = in};
  if (IsCentred(node)) {
    normal.centred = node.Scratch("centred");
    ASSIGN_OR_RETURN(normal.mean, mean_of(in, "mean"));
    RETURN_IF_ERROR(
        AddPlain(node.builder(), "sub_layer", normal.centred, {in, normal.mean}, normal.centred));
  }
  ASSIGN_OR_RETURN(const std::string squares, Squared(node, normal.centred));
  ASSIGN_OR_RETURN(const std::string variance, mean_of(squares, "variance"));
  // By itself: a root and a division for each element would take longer than all else.
  ASSIGN_OR_RETURN(
      normal.factor,
      Computed(node, "factor", absl::StrCat("1 / sqrt(@0 + ", Number(EpsilonOf(node)), ")"),
               {variance}));
  return normal;
}

std::vector<int> AxesFrom(int first, int rank) {
  std::vector<int> axes;
  for (int axis = first; axis < rank; ++axis) axes.push_back(axis);
  return axes;
}

// Of a layer_norm_layer over all dimensions from one on, which are numbers.
struct RowNorm {
  int first = 0;
  int64_t n = 1;
  std::vector<ulf::BlobData> weights;
  bool weighted = true;  // What the node multiplies with and adds is in `weights`.
};
// Nothing: rows of the request are among them, or the mean or the deviation is read.
absl::StatusOr<std::optional<RowNorm>> RowNormOf(const OnnxNode& node, const OnnxValue& x,
                                                 int first) {
  RowNorm norm{.first = first};
  for (int axis = first; axis < x.rank(); ++axis) {
    if (first == 0 || !x.dims[axis].IsConst()) return std::nullopt;
    norm.n *= x.dims[axis].value();
  }
  for (int i = 1; i < node.node.output_size(); ++i) {
    if (node.uses.contains(node.node.output(i))) return std::nullopt;
  }
  for (int i = 1; i < 3 && node.Has(i); ++i) {
    const Constant* const parameter = node.constant(i);
    const int64_t count = parameter == nullptr ? 0 : parameter->elements();
    if (parameter == nullptr || (count != norm.n && count != 1)) {
      norm.weighted = false;
      norm.weights.clear();
      break;
    }
    ASSIGN_OR_RETURN(std::vector<float> values, parameter->ToFloats());
    if (count == 1) values.resize(static_cast<size_t>(norm.n), values[0]);
    norm.weights.push_back(MakeBlob({norm.n}, values));
  }
  return norm;
}

// The layer's output, whose last dimension is all that is normalised.
absl::StatusOr<OnnxValue> AddRowNorm(OnnxNode& node, OnnxValue x, RowNorm norm) {
  const bool whole = norm.weighted && norm.first + 1 == x.rank();
  const std::string name = whole ? node.name : node.Scratch("rows");
  const std::string top = whole ? node.Top() : name;
  if (norm.first + 1 < x.rank()) {
    Dims dims(x.dims.begin(), x.dims.begin() + norm.first);
    dims.push_back(Dim::Of(norm.n));
    ASSIGN_OR_RETURN(x, Reshaped(node, x, std::move(dims)));
  }
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, {norm.first}));
  ulf::LayerParameter layer = MakeLayer("layer_norm_layer", name, {in}, top);
  layer.mutable_layer_norm_param()->set_eps(EpsilonOf(node));
  layer.mutable_layer_norm_param()->set_centred(IsCentred(node));
  RETURN_IF_ERROR(node.builder().AddLayer(std::move(layer), std::move(norm.weights)));
  return node.graph.Whole(top, x.dims);
}

// The outputs behind the first: the mean, and one over the deviation.
absl::Status SetStatistics(OnnxNode& node, const Normal& normal, const Dims& dims) {
  for (int i = 1; i < node.node.output_size(); ++i) {
    if (!node.uses.contains(node.node.output(i))) continue;
    const std::string top = node.graph.Top(node.node.output(i));
    RETURN_IF_ERROR(
        AddExpression(node.builder(), top, "@0 * 1", {i == 1 ? normal.mean : normal.factor}, top));
    node.Set(top, dims, i);
  }
  return absl::OkStatus();
}

// (x - mean) / sqrt(variance + epsilon) * scale + bias, over all dimensions from `axis` on.
absl::Status LayerNormalization(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const int first, WantAxis(IntAttribute(node.node, "axis", -1), x.rank()));
  ASSIGN_OR_RETURN(std::optional<RowNorm> rows, RowNormOf(node, x, first));
  std::vector<std::string> bottoms;
  std::string text;
  Normal normal;
  if (rows.has_value()) {
    const bool weighted = rows->weighted;
    ASSIGN_OR_RETURN(OnnxValue y, AddRowNorm(node, x, *std::move(rows)));
    if (weighted) return ReshapeTo(node, y, x.dims);
    if (y.dims != x.dims) {
      ASSIGN_OR_RETURN(y, Reshaped(node, y, x.dims));
    }
    ASSIGN_OR_RETURN(bottoms.emplace_back(), node.graph.Plain(y));
    text = "@0";
  } else {
    ASSIGN_OR_RETURN(normal, NormalOf(node, x, AxesFrom(first, x.rank())));
    bottoms = {normal.centred, normal.factor};
    text = "@0 * @1";
  }
  for (int i = 1; i < 3 && node.Has(i); ++i) {
    ASSIGN_OR_RETURN(const OnnxValue parameter, node.value(i));
    absl::StrAppend(&text, i == 1 ? " * @" : " + @", bottoms.size());
    ASSIGN_OR_RETURN(bottoms.emplace_back(), node.graph.Plain(parameter));
  }
  RETURN_IF_ERROR(SetComputed(node, text, bottoms, x.dims));
  Dims kept = x.dims;
  std::fill(kept.begin() + first, kept.end(), Dim::Of(1));
  return SetStatistics(node, normal, kept);
}

// By statistics of the request's rows, as a model has it whose own were never gathered
// (track_running_stats=False); one that has some was exported while it was trained.
absl::Status NormaliseByRows(OnnxNode& node, const OnnxValue& x) {
  for (const int i : {3, 4}) {
    const Constant* const own = node.constant(i);
    if (own == nullptr) return Unimplemented("training_mode 1: computed statistics");
    ASSIGN_OR_RETURN(const std::vector<float> values, own->ToFloats());
    const auto is_first = [&](float value) { return value == (i == 3 ? 0.0f : 1.0f); };
    if (!std::all_of(values.begin(), values.end(), is_first)) {
      return Unimplemented(
          "training_mode 1, beside statistics that were gathered: call eval() before the export");
    }
  }
  std::vector<int> axes = AxesFrom(0, x.rank());
  axes.erase(axes.begin() + 1);
  ASSIGN_OR_RETURN(const Normal normal, NormalOf(node, x, axes));
  std::vector<std::string> bottoms = {normal.centred, normal.factor};
  for (int i = 1; i < 3; ++i) {
    ASSIGN_OR_RETURN(OnnxValue parameter, node.value(i));
    if (parameter.rank() != 1) return InvalidArgument("want a value per channel");
    for (int axis = 2; axis < x.rank(); ++axis) parameter = WithAxis(std::move(parameter), 1);
    ASSIGN_OR_RETURN(bottoms.emplace_back(), node.graph.Plain(parameter));
  }
  return SetComputed(node, "@0 * @1 * @2 + @3", bottoms, x.dims);
}

absl::Status BatchNormalization(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  if (x.rank() < 2) return Unimplemented("of shape ", DimsText(x.dims));
  if (IntAttribute(node.node, "training_mode", 0) != 0) return NormaliseByRows(node, x);
  ChannelNorm norm;
  norm.eps = FloatAttribute(node.node, "epsilon", 1e-5f);
  std::vector<float>* const parts[] = {&norm.gamma, &norm.beta, &norm.mean, &norm.var};
  for (int i = 0; i < 4; ++i) {
    const Constant* constant = node.constant(i + 1);
    if (constant == nullptr) return Unimplemented("parameters that are computed");
    ASSIGN_OR_RETURN(*parts[i], constant->ToFloats());
    if (x.rank() < 2 || x.dims[1] != Dim::Of(static_cast<int64_t>(parts[i]->size()))) {
      return InvalidArgument("input ", i + 1, ": ", parts[i]->size(),
                             " values, want one per channel of ", DimsText(x.dims));
    }
  }
  const std::vector<int> order = TensorOrder(node.graph, x), back = Inverse(order);
  if (!order.empty()) x = Reordered(x, order);
  const int channel = order.empty() ? 1 : back[1];
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, {channel}));
  const std::string out = node.Top();
  RETURN_IF_ERROR(AddNorm(node.builder(), node.name, in, channel, norm, out));
  const OnnxValue y = node.graph.Whole(out, x.dims);
  node.Set(order.empty() ? y : Reordered(y, back));
  return absl::OkStatus();
}

constexpr OnnxType kTypes[] = {
    {"Softmax", &Softmax},
    {"ReduceSum", &Fold<ulf::SumParameter::SUM>},
    {"ReduceMean", &ReduceMean},
    {"ReduceMax", &Fold<ulf::SumParameter::MAX>},
    {"ReduceMin", &Fold<ulf::SumParameter::MIN>},
    {"ReduceProd", &Fold<ulf::SumParameter::PRODUCT>},
    {"LogSoftmax", &LogSoftmax},
    {"BatchNormalization", &BatchNormalization},
    {"LayerNormalization", &LayerNormalization},
    {"RMSNormalization", &LayerNormalization},
    {"ReduceLogSumExp", &ReduceLogSumExp},
};

}  // namespace

absl::Span<const OnnxType> NormOnnxTypes() { return kTypes; }

}  // namespace ulfd::convert
