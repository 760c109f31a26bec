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

// Largest or smallest entry, or the product.
template <ulf::SumParameter::Function function>
absl::Status Fold(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const std::vector<int> axes, ReducedAxes(node, x.rank()));
  NoteRows(node, x.dims, axes);
  if (!OfOneEntry(x, axes)) {
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

enum class Reduction : uint8_t { kSum, kMean, kSumSquare, kL1, kL2 };

absl::Status Reduce(OnnxNode& node, Reduction kind) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const std::vector<int> stated, ReducedAxes(node, x.rank()));
  const std::vector<int> order = TensorOrder(node.graph, x), back = Inverse(order);
  if (OfOneEntry(x, stated) && (kind == Reduction::kSum || kind == Reduction::kMean)) {
    SetReduced(node, std::move(x), stated);
    return absl::OkStatus();
  }
  std::vector<int> axes = stated;
  if (!order.empty()) {
    x = Reordered(x, order);
    for (int& axis : axes) axis = back[axis];
    std::sort(axes.begin(), axes.end());
  }
  NoteRows(node, x.dims, axes);
  if (kind == Reduction::kSum && node.across_rows) node.graph.MarkRowSum(node.output());
  if (node.graph.IsInteger(node.node.input(0)) &&
      (kind == Reduction::kMean || kind == Reduction::kL2)) {
    return Unimplemented("of integers, whose result ONNX rounds");
  }
  ASSIGN_OR_RETURN(std::string tensor, node.graph.PlainAlong(x, axes));
  if (kind == Reduction::kSumSquare || kind == Reduction::kL2) {
    ASSIGN_OR_RETURN(tensor, Squared(node, tensor));
  }
  if (kind == Reduction::kL1) {
    ASSIGN_OR_RETURN(tensor, Computed(node, "sizes", "abs(@0)", {tensor}));
  }
  const std::string out = node.Top();
  if (kind == Reduction::kMean) {
    ASSIGN_OR_RETURN(tensor, MeanAlong(node, tensor, x.dims, axes, node.name, out));
  } else if (kind == Reduction::kL2) {
    const std::string total = node.Scratch("total");
    ASSIGN_OR_RETURN(tensor, SumAlong(node, tensor, axes, total, total));
    RETURN_IF_ERROR(AddExpression(node.builder(), node.name, "sqrt(@0)", {tensor}, out));
    tensor = out;
  } else {
    ASSIGN_OR_RETURN(tensor, SumAlong(node, tensor, axes, node.name, out));
  }
  const OnnxValue y = Reduced(node, tensor, x.dims, axes);
  SetReduced(node, order.empty() ? y : Reordered(y, back), stated);
  return absl::OkStatus();
}

template <Reduction kind>
absl::Status ReduceBy(OnnxNode& node) {
  return Reduce(node, kind);
}

// log(sum(x)).
absl::Status ReduceLogSum(OnnxNode& node) {
  RETURN_IF_ERROR(Reduce(node, Reduction::kSum));
  OnnxValue y = *node.graph.FindValue(node.output());
  ASSIGN_OR_RETURN(y.tensor, Computed(node, "log", "log(@0)", {y.tensor}));
  node.Set(std::move(y));
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

// (x - mean) * factor; `deviation`: its formula, of the variance.  Root mean squares: of a mean of
// 0.
absl::StatusOr<Normal> NormalOf(OnnxNode& node, const OnnxValue& x, const std::vector<int>& axes,
                                absl::string_view deviation) {
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
  ASSIGN_OR_RETURN(normal.factor,
                   Computed(node, "factor", absl::StrCat("1 / ", deviation), {variance}));
  return normal;
}

std::vector<int> AxesFrom(int first, int rank) {
  std::vector<int> axes;
  for (int axis = first; axis < rank; ++axis) axes.push_back(axis);
  return axes;
}

float EpsilonOf(const OnnxNode& node) { return FloatAttribute(node.node, "epsilon", 1e-5f); }
std::string DeviationOf(const OnnxNode& node) {
  return absl::StrCat("sqrt(@0 + ", Number(EpsilonOf(node)), ")");
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
    ASSIGN_OR_RETURN(normal, NormalOf(node, x, AxesFrom(first, x.rank()), DeviationOf(node)));
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

// By statistics along these axes; scale and bias are one value per channel.
absl::Status NormalisePerChannel(OnnxNode& node, const OnnxValue& x, const std::vector<int>& axes) {
  ASSIGN_OR_RETURN(const Normal normal, NormalOf(node, x, axes, DeviationOf(node)));
  std::vector<std::string> bottoms = {normal.centred, normal.factor};
  for (int i = 1; i < 3; ++i) {
    ASSIGN_OR_RETURN(OnnxValue parameter, node.value(i));
    if (parameter.rank() != 1) return InvalidArgument("want a value per channel");
    for (int axis = 2; axis < x.rank(); ++axis) parameter = WithAxis(std::move(parameter), 1);
    ASSIGN_OR_RETURN(bottoms.emplace_back(), node.graph.Plain(parameter));
  }
  return SetComputed(node, "@0 * @1 * @2 + @3", bottoms, x.dims);
}

// Per row and channel.
absl::Status InstanceNormalization(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  if (x.rank() < 3) return Unimplemented("of shape ", DimsText(x.dims));
  return NormalisePerChannel(node, x, AxesFrom(2, x.rank()));
}

// (x - mean) / (deviation + 1e-9), as ONNX's own definition of the operator has it.
absl::Status MeanVarianceNormalization(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  std::vector<int64_t> stated = IntsAttribute(node.node, "axes");
  if (stated.empty()) stated = {0, 2, 3};
  ASSIGN_OR_RETURN(const std::vector<int> axes, WantAxes(stated, x.rank()));
  ASSIGN_OR_RETURN(const Normal normal, NormalOf(node, x, axes, "(sqrt(@0) + 1e-9)"));
  return SetComputed(node, "@0 * @1", {normal.centred, normal.factor}, x.dims);
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
  return NormalisePerChannel(node, x, axes);
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

// x / (bias + alpha / size * (sum of squares of the channels around it))^beta.
absl::Status Lrn(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  constexpr int64_t kMostChannels = 4096;
  const int64_t size = IntAttribute(node.node, "size", 0);
  if (x.rank() < 2 || !x.dims[1].IsConst() || x.dims[1].value() > kMostChannels || size < 1) {
    return Unimplemented("size ", size, " of channels of shape ", DimsText(x.dims));
  }
  const int64_t channels = x.dims[1].value();
  const float share = FloatAttribute(node.node, "alpha", 1e-4f) / static_cast<float>(size);
  Dense band{.weight = std::vector<float>(static_cast<size_t>(channels * channels), 0.0f),
             .sizes = {channels, channels}};
  for (int64_t to = 0; to < channels; ++to) {
    const int64_t end = std::min(channels, to + size / 2 + 1);
    for (int64_t from = std::max<int64_t>(0, to - (size - 1) / 2); from < end; ++from) {
      band.weight[static_cast<size_t>(from * channels + to)] = share;
    }
  }
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, {1}));
  ASSIGN_OR_RETURN(const std::string squares, Squared(node, in));
  const std::string sums = node.Scratch("sums");
  const int last = x.rank() - 1;
  ASSIGN_OR_RETURN(const OnnxValue around,
                   DenseOf(node, MoveAxis(node.graph.Whole(squares), 1, last), band, sums, sums));
  ASSIGN_OR_RETURN(const std::string total, node.graph.Plain(MoveAxis(around, last, 1)));
  const std::string bias = Number(FloatAttribute(node.node, "bias", 1));
  const std::string beta = Number(FloatAttribute(node.node, "beta", 0.75f));
  return SetComputed(node, absl::StrCat("@0 / pow(@1 + ", bias, ", ", beta, ")"), {in, total},
                     x.dims);
}

constexpr OnnxType kTypes[] = {
    {"Softmax", &Softmax},
    {"ReduceSum", &ReduceBy<Reduction::kSum>},
    {"ReduceMean", &ReduceBy<Reduction::kMean>},
    {"ReduceSumSquare", &ReduceBy<Reduction::kSumSquare>},
    {"ReduceL1", &ReduceBy<Reduction::kL1>},
    {"ReduceL2", &ReduceBy<Reduction::kL2>},
    {"ReduceMax", &Fold<ulf::SumParameter::MAX>},
    {"ReduceMin", &Fold<ulf::SumParameter::MIN>},
    {"ReduceProd", &Fold<ulf::SumParameter::PRODUCT>},
    {"LogSoftmax", &LogSoftmax},
    {"BatchNormalization", &BatchNormalization},
    {"LayerNormalization", &LayerNormalization},
    {"RMSNormalization", &LayerNormalization},
    {"InstanceNormalization", &InstanceNormalization},
    {"MeanVarianceNormalization", &MeanVarianceNormalization},
    {"LRN", &Lrn},
    {"ReduceLogSum", &ReduceLogSum},
    {"ReduceLogSumExp", &ReduceLogSumExp},
};

}  // namespace

absl::Span<const OnnxType> NormOnnxTypes() { return kTypes; }

}  // namespace ulfd::convert
