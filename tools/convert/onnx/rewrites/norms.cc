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
    if (const Node* back = MakerOf(name, "Reshape", 2)) return FusedNormalOf(*back);
    const Node* const ratio = MakerOf(name, "Div", 2);
    const std::optional<Root> root = ratio == nullptr ? std::nullopt : RootOf(ratio->input(1));
    if (!root.has_value()) return std::nullopt;
    const std::string &above = ratio->input(0), x = Centred(above);
    if (!x.empty() && Centred(root->of) == x) return Normal{x, root->epsilon};
    if (root->of == above) return Normal{above, root->epsilon, false};
    return std::nullopt;
  }
  // What makes the value, but for casts.
  const Node* Uncast(const std::string& name, const char* op, int inputs) const {
    const Node* const cast = MakerOf(name, "Cast", 1);
    return cast == nullptr ? MakerOf(name, op, inputs) : Uncast(cast->input(0), op, inputs);
  }
  bool IsFilledWith(const std::string& name, float number) const {
    const Node* const expand = MakerOf(name, "Expand", 2);
    if (expand != nullptr) return IsNumber(expand->input(0), number);
    const Node* const fill = MakerOf(name, "ConstantOfShape", 1);
    const onnx::AttributeProto* const value =
        fill == nullptr ? nullptr : FindAttribute(*fill, "value");
    return fill != nullptr && (value == nullptr ? number == 0 : IsNumber(value->t(), number));
  }
  // As Keras has it: a batch norm of [1, rows, width, 1] by the rows' own means and variances,
  // which is given the shape of x again.
  std::optional<Normal> FusedNormalOf(const Node& back) const {
    const Node* const norm = MakerOf(back.input(0), "BatchNormalization", 5);
    const Node* const apart = norm == nullptr ? nullptr : MakerOf(norm->input(0), "Reshape", 2);
    if (apart == nullptr || IntAttribute(*norm, "training_mode", 0) != 0) return std::nullopt;
    const std::string &x = apart->input(0), &rows = norm->input(0);
    const Node* const shape = Uncast(back.input(1), "Shape", 1);
    const Node* const sizes = Uncast(apart->input(1), "Concat", 4);
    const Node* const mean = MakerOf(norm->input(3), "Squeeze", 1);
    const Node* const means = mean == nullptr ? nullptr : MakerOf(mean->input(0), "ReduceMean", 1);
    const Node* const ratio = MakerOf(norm->input(4), "Div", 2);
    const Node* const sum =
        ratio == nullptr ? nullptr : MakerOf(ratio->input(0), "ReduceSumSquare", 1);
    const Node* const less = sum == nullptr ? nullptr : MakerOf(sum->input(0), "Sub", 2);
    if (shape == nullptr || sizes == nullptr || means == nullptr || less == nullptr) {
      return std::nullopt;
    }
    const std::vector<int64_t> others = {0, 2, 3};
    const bool same = shape->input(0) == x && means->input(0) == rows && less->input(0) == rows &&
                      less->input(1) == mean->input(0) && AxesOf(*means) == others &&
                      AxesOf(*sum) == others && IsNumber(sizes->input(0), 1) &&
                      IsNumber(sizes->input(3), 1) && IsFilledWith(norm->input(1), 1) &&
                      IsFilledWith(norm->input(2), 0);
    if (!same) return std::nullopt;
    return Normal{x, FloatAttribute(*norm, "epsilon", 1e-5F)};
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
