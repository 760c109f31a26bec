// ONNX's losses, out of what other operators are made of.
// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/graph.h"
#include "tools/convert/onnx/operators/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

// The loss of log probabilities x [rows, C, ...] (a tensor) at the labels [rows, ...]: the entry of
// x at the label, times -weight[label]; summed, or averaged by weight.
absl::Status AddLoss(OnnxNode& node, const std::string& x, const Dims& dims) {
  ASSIGN_OR_RETURN(const OnnxValue labels, node.value(1));
  if (labels.rank() + 1 != static_cast<int>(dims.size())) {
    return InvalidArgument("labels of shape ", DimsText(labels.dims), " for ", DimsText(dims));
  }
  const int behind = static_cast<int>(dims.size()) - 2;
  ASSIGN_OR_RETURN(const std::string label, node.graph.Plain(WithAxis(labels, 1)));
  ASSIGN_OR_RETURN(const std::string places, AddPlaces(node, dims[1].value(), behind));
  std::vector<std::string> bottoms = {label, places};
  if (node.Has(2)) {
    ASSIGN_OR_RETURN(OnnxValue weight, node.value(2));
    if (weight.rank() != 1) return InvalidArgument("want a weight per class");
    for (int i = 0; i < behind; ++i) weight = WithAxis(std::move(weight), 1);
    ASSIGN_OR_RETURN(bottoms.emplace_back(), node.graph.Plain(weight));
  }
  const std::string weight = node.Has(2) ? "@2" : "1";
  std::string chosen = "(@0 == @1)";
  if (FindAttribute(node.node, "ignore_index") != nullptr) {
    absl::StrAppend(&chosen, " * (@0 != ",
                    Number(static_cast<float>(IntAttribute(node.node, "ignore_index", 0))), ")");
  }
  const std::string reduction = StringAttribute(node.node, "reduction", "mean");
  if (reduction != "none" && reduction != "mean" && reduction != "sum") {
    return InvalidArgument("reduction ", reduction);
  }
  std::vector<int> axes = {1};
  Dims left = dims;
  if (reduction == "none") {
    left.erase(left.begin() + 1);
  } else {
    axes.clear();
    left.clear();
    for (int axis = 0; axis < behind + 2; ++axis) axes.push_back(axis);
    NoteRows(node, dims, axes);
  }
  const std::string out = node.Top();
  bottoms.push_back(x);
  const std::string loss =
      absl::StrCat("where(", chosen, ", 0 - ", weight, " * @", bottoms.size() - 1, ", 0)");
  ASSIGN_OR_RETURN(const std::string losses, Computed(node, "losses", loss, bottoms));
  if (reduction != "mean") {
    RETURN_IF_ERROR(SumAlong(node, losses, axes, node.name, out).status());
  } else {
    bottoms.pop_back();
    const std::string total = node.Scratch("total"), weighed = node.Scratch("weighed");
    RETURN_IF_ERROR(SumAlong(node, losses, axes, total, total).status());
    ASSIGN_OR_RETURN(const std::string weights,
                     Computed(node, "weights", absl::StrCat(chosen, " * ", weight), bottoms));
    RETURN_IF_ERROR(SumAlong(node, weights, axes, weighed, weighed).status());
    RETURN_IF_ERROR(AddPlain(node.builder(), "div_layer", node.name, {total, weighed}, out));
  }
  node.Set(left.empty() ? OnnxValue{.tensor = out} : node.graph.Whole(out, left));
  return absl::OkStatus();
}

absl::Status WantClasses(const OnnxValue& x) {
  constexpr int64_t kMost = 1 << 16;
  if (x.rank() >= 2 && x.dims[1].IsConst() && x.dims[1].value() <= kMost) return absl::OkStatus();
  return Unimplemented("scores of shape ", DimsText(x.dims),
                       ", want [rows, classes, ...], at most ", kMost);
}

absl::Status NegativeLogLikelihoodLoss(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  RETURN_IF_ERROR(WantClasses(x));
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, {1}));
  return AddLoss(node, in, x.dims);
}

absl::Status SoftmaxCrossEntropyLoss(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  RETURN_IF_ERROR(WantClasses(x));
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, {1}));
  const bool asked = node.node.output_size() > 1 && !node.node.output(1).empty();
  const std::string logs =
      asked ? node.graph.Top(node.node.output(1)) : node.Scratch("log_probabilities");
  RETURN_IF_ERROR(AddSoftmax(node.builder(), logs, in, 1, logs, /*log=*/true));
  if (asked) node.Set(logs, x.dims, 1);
  return AddLoss(node, logs, x.dims);
}

constexpr OnnxType kTypes[] = {
    {"NegativeLogLikelihoodLoss", &NegativeLogLikelihoodLoss},
    {"SoftmaxCrossEntropyLoss", &SoftmaxCrossEntropyLoss},
};

}  // namespace

absl::Span<const OnnxType> LossOnnxTypes() { return kTypes; }

}  // namespace ulfd::convert
