// Operators of ONNX Runtime's optimiser, written by others.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/rewrites/composite_writer.h"

namespace ulfd::convert {
namespace {

using Node = onnx::NodeProto;

bool GeluOf(CompositeWriter& w, const Node& node, const std::string& x, bool tanh) {
  Node& gelu = w.Add(node, "Gelu", {x}, node.output(0));
  if (tanh) SetString(gelu, "approximate", "tanh");
  return true;
}

std::string Biased(CompositeWriter& w, const Node& node) {
  return Has(node, 1) ? w.Make(node, "Add", {node.input(0), node.input(1)}) : node.input(0);
}

bool Gelu(CompositeWriter& w, const Node& node) { return GeluOf(w, node, node.input(0), false); }
bool BiasGelu(CompositeWriter& w, const Node& node) {
  return GeluOf(w, node, Biased(w, node), false);
}

bool FastGelu(CompositeWriter& w, const Node& node) {
  return GeluOf(w, node, Biased(w, node), true);
}

// The node's output is x * sigmoid(alpha * x), times y if that is given.
void AddSwish(CompositeWriter& w, const Node& node, float usual_alpha, const std::string& y = "") {
  std::string x = node.input(0);
  const float alpha = FloatAttribute(node, "alpha", usual_alpha);
  const std::string scaled = w.Make(node, "Mul", {x, w.Number(node.output(0), alpha)});
  const std::string gate = w.Make(node, "Sigmoid", {scaled});
  if (!y.empty()) x = w.Make(node, "Mul", {x, y});
  w.Add(node, "Mul", {x, gate}, node.output(0));
}

bool QuickGelu(CompositeWriter& w, const Node& node) {
  AddSwish(w, node, 1.702f);
  return true;
}

bool Swish(CompositeWriter& w, const Node& node) {
  AddSwish(w, node, 1);
  return true;
}

bool SwiGlu(CompositeWriter& w, const Node& node) {
  AddSwish(w, node, 1, node.input(1));
  return true;
}

bool MatMul(CompositeWriter& w, const Node& node) {
  // Rows before, instead of behind, the batch's dimensions.
  const bool before_a = IntAttribute(node, "transBatchA", 0) != 0;
  const bool before_b = IntAttribute(node, "transBatchB", 0) != 0;
  const bool a = IntAttribute(node, "transA", 0) != 0;
  bool b = IntAttribute(node, "transB", 0) != 0;
  const float alpha = FloatAttribute(node, "alpha", 1);
  std::string right = node.input(1);
  const onnx::TensorProto* const weight = w.FindTensor(right);
  if (b && !a && weight != nullptr && weight->dims_size() == 2) {
    right = w.Transposed(node, right, {1, 0});
    b = false;
  }
  const std::string out = alpha == 1 ? node.output(0) : w.Fresh(node.output(0));
  if (a || b || before_a || before_b) {
    const char* const left = before_a ? (a ? "k...i" : "i...k") : (a ? "...ki" : "...ik");
    const char* const other = before_b ? (b ? "j...k" : "k...j") : (b ? "...jk" : "...kj");
    SetString(w.Add(node, "Einsum", {node.input(0), right}, out), "equation",
              absl::StrCat(left, ",", other, "->...ij"));
  } else {
    w.Add(node, "MatMul", {node.input(0), right}, out);
  }
  if (alpha != 1) w.Add(node, "Mul", {out, w.Number(out, alpha)}, node.output(0));
  return true;
}

// A Gemm or Conv with an activation behind it.
bool WithActivation(CompositeWriter& w, const Node& node, const char* op) {
  const std::string activation = StringAttribute(node, "activation", "");
  const std::vector<float> parameters = FloatsAttribute(node, "activation_params");
  if (!EndsBefore(node, 3)) return false;
  Node plain = node;
  plain.set_op_type(op);
  plain.clear_domain();
  plain.clear_attribute();
  const float alpha =
      parameters.empty() ? FloatAttribute(node, "activation_alpha", NAN) : parameters[0];
  const float beta =
      parameters.size() < 2 ? FloatAttribute(node, "activation_beta", NAN) : parameters[1];
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name().rfind("activation", 0) != 0) *plain.add_attribute() = attribute;
  }
  if (activation.empty()) {
    w.Add(plain);
    return true;
  }
  const std::string before = w.Fresh(node.output(0));
  plain.set_output(0, before);
  w.Add(plain);
  if (activation == "Clip") {
    w.Add(node, "Clip", {before, w.Number(before, alpha), w.Number(before, beta)}, node.output(0));
    return true;
  }
  constexpr absl::string_view kKnown[] = {"Relu",        "Sigmoid", "Tanh",     "LeakyRelu",
                                          "HardSigmoid", "Elu",     "Softplus", "Softsign"};
  if (std::find(std::begin(kKnown), std::end(kKnown), activation) == std::end(kKnown)) {
    return false;
  }
  Node& last = w.Add(node, activation.c_str(), {before}, node.output(0));
  if (!std::isnan(alpha)) SetFloat(last, "alpha", alpha);
  if (!std::isnan(beta)) SetFloat(last, "beta", beta);
  return true;
}

bool Gemm(CompositeWriter& w, const Node& node) { return WithActivation(w, node, "Gemm"); }
bool Conv(CompositeWriter& w, const Node& node) { return WithActivation(w, node, "Conv"); }

bool RootMeanSquare(CompositeWriter& w, const Node& node, const std::string& x,
                    const std::string& scale) {
  SetFloat(w.Add(node, "RMSNormalization", {x, scale}, node.output(0)), "epsilon",
           FloatAttribute(node, "epsilon", 1e-5f));
  return true;
}

bool SimplifiedNormalise(CompositeWriter& w, const Node& node) {
  return IntAttribute(node, "axis", -1) == -1 && w.OnlyFirst(node) &&
         RootMeanSquare(w, node, node.input(0), node.input(1));
}

// x + skip (+ bias), and the fourth output is that.
std::string Skipped(CompositeWriter& w, const Node& node, int bias) {
  constexpr int kSum = 3;
  std::string sum = w.Make(node, "Add", {node.input(0), node.input(1)});
  if (Has(node, bias)) sum = w.Make(node, "Add", {sum, node.input(bias)});
  if (node.output_size() > kSum && !node.output(kSum).empty()) {
    w.Add(node, "Identity", {sum}, node.output(kSum));
  }
  return sum;
}

bool OtherStatistics(CompositeWriter& w, const Node& node) {
  for (int i = 1; i < std::min(3, node.output_size()); ++i) {
    if (w.IsRead(node.output(i)) && !node.output(i).empty()) return true;
  }
  return false;
}

bool SkipNormalise(CompositeWriter& w, const Node& node) {
  if (OtherStatistics(w, node)) return false;
  return RootMeanSquare(w, node, Skipped(w, node, 3), node.input(2));
}

bool SkipLayerNormalise(CompositeWriter& w, const Node& node) {
  if (OtherStatistics(w, node)) return false;
  std::vector<std::string> inputs = {Skipped(w, node, 4), node.input(2)};
  if (Has(node, 3)) inputs.push_back(node.input(3));
  SetFloat(w.Add(node, "LayerNormalization", inputs, node.output(0)), "epsilon",
           FloatAttribute(node, "epsilon", 1e-5f));
  return true;
}

// Sums of the rows of tables (words, places, segments), normalised; the second output is how many
// words of each row the mask has.
bool EmbedAndNormalise(CompositeWriter& w, const Node& node) {
  constexpr int kSegments = 1, kWords = 2, kPlaces = 3, kSegmentTable = 4, kScale = 5, kShift = 6,
                kMask = 7, kPlaceIds = 8;
  for (const int input : {kWords, kPlaces, kScale, kShift}) {
    if (!Has(node, input)) return false;
  }
  const std::string& ids = node.input(0);
  std::string places = Has(node, kPlaceIds) ? node.input(kPlaceIds) : "";
  std::string sum = w.Make(node, "Gather", {node.input(kWords), ids});
  if (places.empty()) {
    const std::string rows = w.Integers(ids, {0});
    places = w.Make(node, "Slice", {node.input(kPlaces), rows, w.SizeOf(node, ids, 1), rows});
  } else {
    places = w.Make(node, "Gather", {node.input(kPlaces), places});
  }
  sum = w.Make(node, "Add", {sum, places});
  if (Has(node, kSegments) && Has(node, kSegmentTable)) {
    sum = w.Make(node, "Add",
                 {sum, w.Make(node, "Gather", {node.input(kSegmentTable), node.input(kSegments)})});
  }
  SetFloat(w.Add(node, "LayerNormalization", {sum, node.input(kScale), node.input(kShift)},
                 node.output(0)),
           "epsilon", FloatAttribute(node, "epsilon", 1e-12f));
  if (node.output_size() > 2 && !node.output(2).empty()) {
    w.Add(node, "Identity", {sum}, node.output(2));
  }
  if (node.output_size() < 2 || !w.IsRead(node.output(1))) return true;
  if (!Has(node, kMask)) return false;
  Node& count = w.Add(node, "ReduceSum", {node.input(kMask)}, node.output(1));
  if (w.opset() >= kAxesAreInputs) {
    count.add_input(w.Integers(ids, {1}));
  } else {
    SetInts(count, "axes", {1});
  }
  SetInt(count, "keepdims", 0);
  return true;
}

constexpr Composite kRows[] = {
    {kMicrosoft, "Gelu", 1, Gelu},
    {kMicrosoft, "BiasGelu", 2, BiasGelu},
    {kMicrosoft, "FastGelu", 1, FastGelu},
    {kMicrosoft, "QuickGelu", 1, QuickGelu},
    {kMicrosoft, "FusedMatMul", 2, MatMul},
    {kMicrosoft, "FusedGemm", 2, Gemm},
    {kMicrosoft, "FusedConv", 2, Conv},
    {kMicrosoft, "SkipLayerNormalization", 3, SkipLayerNormalise},
    {kMicrosoft, "SkipSimplifiedLayerNormalization", 3, SkipNormalise},
    {kMicrosoft, "EmbedLayerNormalization", 1, EmbedAndNormalise},
    {"", "SimplifiedLayerNormalization", 2, SimplifiedNormalise},
    {"", "Swish", 1, Swish},
    {"", "SwiGLU", 2, SwiGlu},
};

}  // namespace

absl::Span<const Composite> FusedComposites() { return kRows; }

}  // namespace ulfd::convert
