// Operators that are written by others: families of them in tables, and some of their own.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/rewrites/composite_writer.h"
#include "tools/convert/onnx/rewrites/rewrites.h"

namespace ulfd::convert {

using Node = onnx::NodeProto;

bool Has(const Node& node, int i) { return i < node.input_size() && !node.input(i).empty(); }

bool EndsBefore(const Node& node, int i) {
  for (; i < node.input_size(); ++i) {
    if (Has(node, i)) return false;
  }
  return true;
}

namespace {

bool Norm(CompositeWriter& w, const Node& node) {
  const int64_t p = IntAttribute(node, "p", 2);
  const char* const op = p == 1 ? "ReduceL1" : "ReduceL2";
  const std::string& x = node.input(0);
  w.AddNormal(node, x, w.Reduce(node, op, x, {IntAttribute(node, "axis", -1)}));
  return p == 1 || p == 2;
}

// Of an axis, by a constant condition.
bool Compress(CompositeWriter& w, const Node& node) {
  const std::optional<std::vector<int64_t>> condition = w.Ints(node.input(1));
  if (!condition.has_value() || FindAttribute(node, "axis") == nullptr) return false;
  std::vector<int64_t> places;
  for (size_t i = 0; i < condition->size(); ++i) {
    if ((*condition)[i] != 0) places.push_back(static_cast<int64_t>(i));
  }
  SetInt(w.Add(node, "Gather", {node.input(0), w.Integers(node.output(0), places)}, node.output(0)),
         "axis", IntAttribute(node, "axis", 0));
  return true;
}

// A transposition, a sum or a diagonal of one tensor: times 1.
bool SumOfOne(CompositeWriter& w, const Node& node) {
  const std::string equation = StringAttribute(node, "equation", "");
  const size_t arrow = equation.find("->");
  if (node.input_size() != 1 || arrow == std::string::npos) return false;
  char fresh = 'a';
  while (fresh < 'z' && equation.find(fresh) != std::string::npos) ++fresh;
  SetString(
      w.Add(node, "Einsum", {node.input(0), w.Floats(node.output(0), {1})}, node.output(0)),
      "equation",
      absl::StrCat(equation.substr(0, arrow), ",", std::string(1, fresh), equation.substr(arrow)));
  return equation.find(fresh) == std::string::npos;
}

// The node's output is x * sigmoid(alpha * x), times y if that is given.
void AddSwish(CompositeWriter& w, const Node& node, const std::string& y) {
  std::string x = node.input(0);
  const float alpha = FloatAttribute(node, "alpha", 1);
  const std::string scaled = w.Make(node, "Mul", {x, w.Number(node.output(0), alpha)});
  const std::string gate = w.Make(node, "Sigmoid", {scaled});
  if (!y.empty()) x = w.Make(node, "Mul", {x, y});
  w.Add(node, "Mul", {x, gate}, node.output(0));
}

bool Swish(CompositeWriter& w, const Node& node) {
  AddSwish(w, node, "");
  return true;
}

bool SwiGlu(CompositeWriter& w, const Node& node) {
  AddSwish(w, node, node.input(1));
  return true;
}

bool Scatter(CompositeWriter& w, const Node& node) {
  Node plain = node;
  plain.set_op_type("ScatterElements");
  w.Add(plain);
  return true;
}

constexpr Composite kOthers[] = {
    {"", "LpNormalization", 1, Norm}, {"", "Einsum", 1, SumOfOne}, {"", "Compress", 2, Compress},
    {"", "Scatter", 3, Scatter},      {"", "Swish", 1, Swish},     {"", "SwiGLU", 2, SwiGlu},
};

}  // namespace

CompositeWriter::CompositeWriter(onnx::GraphProto& graph, int64_t opset) : Rewriter(graph, opset) {
  for (const Node& node : graph.node()) read_.insert(node.input().begin(), node.input().end());
  for (const onnx::ValueInfoProto& output : graph.output()) read_.insert(output.name());
}

std::string CompositeWriter::Float(const Node& of, const std::string& x) {
  std::string out = Fresh(of.output(0));
  SetInt(Add(of, "Cast", {x}, out), "to", onnx::TensorProto::FLOAT);
  return out;
}

std::string CompositeWriter::Reduce(const Node& of, const char* op, const std::string& x,
                                    const std::vector<int64_t>& axes) {
  std::string out = Fresh(of.output(0));
  Node& node = Add(of, op, {x}, out);
  if (op == absl::string_view("ReduceSum") && opset_ >= kAxesAreInputs) {
    node.add_input(Integers(out, axes));
  } else {
    SetInts(node, "axes", axes);
  }
  return out;
}

std::string CompositeWriter::Transposed(const Node& of, const std::string& x,
                                        const std::vector<int64_t>& order) {
  std::string out = Fresh(of.output(0));
  SetInts(Add(of, "Transpose", {x}, out), "perm", order);
  return out;
}

bool CompositeWriter::OnlyFirst(const Node& node) const {
  return std::none_of(node.output().begin() + 1, node.output().end(),
                      [&](const std::string& name) { return read_.contains(name); });
}

std::string CompositeWriter::SizeOf(const Node& of, const std::string& x, int64_t axis) {
  std::string size = Fresh(of.output(0));
  const int64_t end = axis == -1 ? std::numeric_limits<int64_t>::max() : axis + 1;
  AddSlice(of, Make(of, "Shape", {x}), 0, axis, end, size);
  return size;
}

void CompositeWriter::AddNormal(const Node& node, const std::string& x, const std::string& size) {
  const std::string some = Fresh(node.output(0));
  SetInt(Add(node, "Cast", {size}, some), "to", onnx::TensorProto::BOOL);
  Add(node, "Where", {some, Make(node, "Div", {x, size}), x}, node.output(0));
}

bool CompositeWriter::Replace(const Node& node) {
  for (const absl::Span<const Composite> family :
       {DefinedComposites(), AttentionComposites(), QuantisedComposites(), ScikitLearnComposites(),
        absl::Span<const Composite>(kOthers)}) {
    for (const Composite& row : family) {
      const bool domain =
          node.domain() == row.domain || (*row.domain == '\0' && node.domain() == "ai.onnx");
      if (!domain || node.op_type() != row.op) continue;
      for (int i = 0; i < row.inputs; ++i) {
        if (!Has(node, i)) return false;
      }
      return row.write(*this, node);
    }
  }
  return false;
}

void WriteComposites(onnx::GraphProto& graph, int64_t opset) {
  while (CompositeWriter(graph, opset).Run()) {  // Some are made of others.
  }
  for (Node& node : *graph.mutable_node()) {
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) WriteComposites(*attribute.mutable_g(), opset);
    }
  }
  for (onnx::ValueInfoProto& output : *graph.mutable_output()) {
    // Of ZipMap, whose matrix takes its place.
    if (!output.type().sequence_type().elem_type().has_map_type()) continue;
    output.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
  }
}

std::string WhyNot(const Node& node) {
  const std::string& domain = node.domain();
  if (IsOneOf(node.op_type(), {"DynamicQuantizeLinear", "DynamicQuantizeMatMul"})) {
    return "quantises by the largest value of the request's rows, so that an ad's score depends on "
           "the others; convert the model as it was before it was quantised (precision: INT8 of "
           "the manifest quantises it here)";
  }
  if (domain.rfind(kMicrosoft, 0) == 0) {
    return absl::StrCat("of ", domain, ": an operator of ONNX Runtime's ",
                        "optimiser; convert the model that it was made of");
  }
  if (absl::StartsWith(node.op_type(), "TreeEnsemble")) {
    return "runtimes disagree on a regression's post_transform and on the label of two classes "
           "that both have leaves; strings are no labels here, and trees are added or averaged";
  }
  if (node.op_type() == "LabelEncoder") {
    return "labels that are integers, each once, within a million of each other, or a thousand "
           "floats are encoded";
  }
  if (domain == kMl) {
    return absl::StrCat("no converter for this of ", domain,
                        ": linear models (a regression without post_transform, on which "
                        "runtimes disagree), scalers and encoders of integers are");
  }
  if (!domain.empty() && domain != "ai.onnx") {
    return absl::StrCat("no converter for domain ", domain);
  }
  return "no converter for this type";
}

}  // namespace ulfd::convert
