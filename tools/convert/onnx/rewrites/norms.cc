// Layer norms, and RMS norms, that are written out.  Products with what is inverted are quotients
// here: ReadIdioms comes before.
// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <vector>

#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/rewrites/pattern_reader.h"
#include "tools/convert/onnx/rewrites/rewrites.h"

namespace ulfd::convert {
namespace {

using Node = onnx::NodeProto;

class NormReader : public PatternReader {
 public:
  NormReader(onnx::GraphProto& graph, int64_t opset) : PatternReader(graph, opset) {}

 private:
  bool Replace(const Node& node) override {
    if ((!node.domain().empty() && node.domain() != "ai.onnx") || node.input_size() < 2) {
      return false;
    }
    if (node.op_type() == "Div") return IsNormal(node);
    if (node.op_type() == "Mul") return IsScaled(node);
    return node.op_type() == "Add" && (IsShifted(node) || IsFactored(node));
  }

  // x of the mean of x along its last axis, which stays; empty: it is none.
  std::string MeanOf(const std::string& name) const {
    const Node* const mean = MakerOf(name, "ReduceMean", 1);
    const bool is = mean != nullptr && IntAttribute(*mean, "keepdims", 1) != 0 &&
                    AxesOf(*mean) == std::vector<int64_t>{-1};
    return is ? mean->input(0) : "";
  }
  // x of x less its mean.
  std::string Centred(const std::string& name) const {
    const Node* const less = MakerOf(name, "Sub", 2);
    return less != nullptr && MeanOf(less->input(1)) == less->input(0) ? less->input(0) : "";
  }
  // The root of the mean of the squares of x, and epsilon.
  struct Root {
    std::string of;
    float epsilon = 0;
  };
  std::optional<Root> RootOf(const std::string& name) const {
    const Node* const sqrt = MakerOf(name, "Sqrt", 1);
    const Node* const sum = sqrt == nullptr ? nullptr : MakerOf(sqrt->input(0), "Add", 2);
    for (int i = 0; sum != nullptr && i < 2; ++i) {
      const std::optional<float> epsilon = NumberOf(sum->input(i));
      if (!epsilon.has_value()) continue;
      const std::string x = SquareRoot(MeanOf(sum->input(1 - i)));
      if (!x.empty()) return Root{x, *epsilon};
    }
    return std::nullopt;
  }
  // x of its square.
  std::string SquareRoot(const std::string& name) const {
    if (const Node* power = MakerOf(name, "Pow", 2)) {
      return IsNumber(power->input(1), 2) ? power->input(0) : "";
    }
    const Node* const product = MakerOf(name, "Mul", 2);
    return product != nullptr && product->input(0) == product->input(1) ? product->input(0) : "";
  }
  // x, less its mean if `centred`, over that root of it.
  struct Normal {
    std::string of;
    float epsilon = 0;
    bool centred = true;
  };
  std::optional<Normal> NormalOf(const std::string& name) const {
    const Node* const ratio = MakerOf(name, "Div", 2);
    const std::optional<Root> root = ratio == nullptr ? std::nullopt : RootOf(ratio->input(1));
    if (!root.has_value()) return std::nullopt;
    const std::string &above = ratio->input(0), x = Centred(above);
    if (!x.empty() && Centred(root->of) == x) return Normal{x, root->epsilon};
    if (root->of == above) return Normal{above, root->epsilon, false};
    return std::nullopt;
  }
  // The same times a vector of the file.
  struct ScaledNormal : Normal {
    std::string scale;
  };
  std::optional<ScaledNormal> ScaledNormalOf(const Node& product) const {
    for (int i = 0; i < 2; ++i) {
      const std::optional<Normal> normal = NormalOf(product.input(1 - i));
      if (normal.has_value() && IsVector(product.input(i))) {
        return ScaledNormal{*normal, product.input(i)};
      }
    }
    return std::nullopt;
  }
  bool IsVector(const std::string& name) const {
    const onnx::TensorProto* const tensor = FindTensor(name);
    return tensor != nullptr && tensor->dims_size() == 1;
  }
  bool Normalise(const Node& node, const Normal& normal, std::vector<std::string> parameters) {
    parameters.insert(parameters.begin(), normal.of);
    SetFloat(Add(node, normal.centred ? "LayerNormalization" : "RMSNormalization", parameters,
                 node.output(0)),
             "epsilon", normal.epsilon);
    return true;
  }

  bool IsNormal(const Node& node) {
    const std::optional<Normal> normal = NormalOf(node.output(0));
    return normal.has_value() && Normalise(node, *normal, {Floats(node.output(0), {1})});
  }
  bool IsScaled(const Node& node) {
    const std::optional<ScaledNormal> normal = ScaledNormalOf(node);
    return normal.has_value() && Normalise(node, *normal, {normal->scale});
  }
  bool IsShifted(const Node& node) {
    for (int i = 0; i < 2; ++i) {
      const Node* const product = MakerOf(node.input(1 - i), "Mul", 2);
      if (product == nullptr || !IsVector(node.input(i))) continue;
      const std::optional<ScaledNormal> normal = ScaledNormalOf(*product);
      if (normal.has_value() && normal->centred) {
        return Normalise(node, *normal, {normal->scale, node.input(i)});
      }
    }
    return false;
  }
  // x * f + (shift - mean * f), as TensorFlow has it: f is a vector over the root.
  bool IsFactored(const Node& node) {
    for (int i = 0; i < 2; ++i) {
      const Node* const product = MakerOf(node.input(1 - i), "Mul", 2);
      const Node* const less = MakerOf(node.input(i), "Sub", 2);
      const Node* const offset = less == nullptr ? nullptr : MakerOf(less->input(1), "Mul", 2);
      if (product == nullptr || offset == nullptr || !IsVector(less->input(0))) continue;
      for (int k = 0; k < 4; ++k) {
        const std::string &x = product->input(k / 2), &factor = product->input(1 - k / 2);
        if (MeanOf(offset->input(k % 2)) != x || offset->input(1 - k % 2) != factor) continue;
        const Node* const ratio = MakerOf(factor, "Div", 2);
        if (ratio == nullptr || !IsVector(ratio->input(0))) continue;
        const std::optional<Root> root = RootOf(ratio->input(1));
        if (root.has_value() && Centred(root->of) == x) {
          return Normalise(node, {x, root->epsilon}, {ratio->input(0), less->input(0)});
        }
      }
    }
    return false;
  }
};

}  // namespace

void ReadNorms(onnx::GraphProto& graph, int64_t opset) { NormReader(graph, opset).Run(); }

}  // namespace ulfd::convert
