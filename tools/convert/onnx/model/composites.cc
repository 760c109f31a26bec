// Operators of ONNX Runtime's optimiser, of scikit-learn's exporters, of quantised models and of
// new operator sets, written by others: each is a row of the table at the end.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/rewriter.h"
#include "tools/convert/onnx/model/rewrites.h"
#include "tools/convert/onnx/model/types.h"

namespace ulfd::convert {
namespace {

using Node = onnx::NodeProto;

// Labels of a tree ensemble.
int64_t ClassesOf(const Node& node) {
  const onnx::AttributeProto* const names = FindAttribute(node, "classlabels_strings");
  return names != nullptr && names->strings_size() > 0
             ? names->strings_size()
             : static_cast<int64_t>(IntsAttribute(node, "classlabels_int64s").size());
}

bool Has(const Node& node, int i) { return i < node.input_size() && !node.input(i).empty(); }

// Whether nothing is given from input i on.
bool EndsBefore(const Node& node, int i) {
  for (; i < node.input_size(); ++i) {
    if (Has(node, i)) return false;
  }
  return true;
}

// The numbers that a quantised type has.
std::optional<std::pair<float, float>> RangeOf(int type) {
  switch (type) {
    case onnx::TensorProto::UINT8:
      return std::pair(0.0f, 255.0f);
    case onnx::TensorProto::INT8:
      return std::pair(-128.0f, 127.0f);
    case onnx::TensorProto::UINT16:
      return std::pair(0.0f, 65535.0f);
    case onnx::TensorProto::INT16:
      return std::pair(-32768.0f, 32767.0f);
    default:
      return std::nullopt;
  }
}

class CompositeWriter : public Rewriter {
 public:
  CompositeWriter(onnx::GraphProto& graph, int64_t opset) : Rewriter(graph, opset) {
    for (const onnx::ValueInfoProto& input : graph.input()) {
      const onnx::TypeProto::Tensor& tensor = input.type().tensor_type();
      if (tensor.has_shape()) ranks_[input.name()] = tensor.shape().dim_size();
    }
    for (const Node& node : graph.node()) {
      read_.insert(node.input().begin(), node.input().end());
      NoteRank(node);
    }
    for (const onnx::ValueInfoProto& output : graph.output()) read_.insert(output.name());
  }

 private:
  struct Row {
    const char *domain, *op;
    int inputs;  // At least.
    bool (CompositeWriter::*write)(const Node& node);
  };
  static const Row kRows[];

  bool Replace(const Node& node) override;

  // ------------------------------------------------------------------------------- steps

  std::string Float(const Node& of, const std::string& x) {
    const std::string out = Fresh(of.output(0));
    SetInt(Add(of, "Cast", {x}, out), "to", onnx::TensorProto::FLOAT);
    return out;
  }
  std::string Reduce(const Node& of, const char* op, const std::string& x, int64_t axis) {
    const std::string out = Fresh(of.output(0));
    Node& node = Add(of, op, {x}, out);
    SetInts(node, "axes", {axis});
    SetInt(node, "keepdims", 1);
    return out;
  }
  std::string Transposed(const Node& of, const std::string& x, std::vector<int64_t> order) {
    const std::string out = Fresh(of.output(0));
    SetInts(Add(of, "Transpose", {x}, out), "perm", std::move(order));
    return out;
  }
  // Ranks of masks, as they are made of inputs.
  void NoteRank(const Node& node) {
    if (node.output_size() > 1 && node.op_type() == "EmbedLayerNormalization") {
      ranks_[node.output(1)] = 1;
      return;
    }
    const bool reduces = node.op_type() == "ReduceSum";
    if (!reduces && !IsOneOf(node.op_type(), {"Cast", "Not", "Equal", "Greater"})) return;
    if (node.input_size() == 0 || node.output_size() == 0) return;
    const auto of = ranks_.find(node.input(0));
    if (of == ranks_.end()) return;
    if (reduces && of->second == 2 && IntAttribute(node, "keepdims", 1) == 0) {
      ranks_[node.output(0)] = 1;
    } else if (!reduces) {
      ranks_[node.output(0)] = of->second;
    }
  }
  // The other outputs are not there.
  bool OnlyFirst(const Node& node) const {
    return std::none_of(node.output().begin() + 1, node.output().end(),
                        [&](const std::string& name) { return read_.contains(name); });
  }

  // --------------------------------------------------------- fused by ONNX Runtime's optimiser

  bool GeluOf(const Node& node, const std::string& x, bool tanh) {
    Node& gelu = Add(node, "Gelu", {x}, node.output(0));
    if (tanh) SetString(gelu, "approximate", "tanh");
    return true;
  }
  std::string Biased(const Node& node) {
    return Has(node, 1) ? Make(node, "Add", {node.input(0), node.input(1)}) : node.input(0);
  }
  bool Gelu(const Node& node) { return GeluOf(node, node.input(0), false); }
  bool BiasGelu(const Node& node) { return GeluOf(node, Biased(node), false); }
  bool FastGelu(const Node& node) { return GeluOf(node, Biased(node), true); }
  bool QuickGelu(const Node& node) {
    const std::string& x = node.input(0);
    const float alpha = FloatAttribute(node, "alpha", 1.702f);
    const std::string scaled = Make(node, "Mul", {x, Number(node.output(0), alpha)});
    Add(node, "Mul", {x, Make(node, "Sigmoid", {scaled})}, node.output(0));
    return true;
  }

  bool MatMul(const Node& node) {
    // Rows before, instead of behind, the batch's dimensions.
    const bool before_a = IntAttribute(node, "transBatchA", 0) != 0;
    const bool before_b = IntAttribute(node, "transBatchB", 0) != 0;
    const bool a = IntAttribute(node, "transA", 0) != 0;
    bool b = IntAttribute(node, "transB", 0) != 0;
    const float alpha = FloatAttribute(node, "alpha", 1);
    std::string right = node.input(1);
    const onnx::TensorProto* const weight = FindTensor(right);
    if (b && !a && weight != nullptr && weight->dims_size() == 2) {
      right = Transposed(node, right, {1, 0});
      b = false;
    }
    const std::string out = alpha == 1 ? node.output(0) : Fresh(node.output(0));
    if (a || b || before_a || before_b) {
      const char* const left = before_a ? (a ? "k...i" : "i...k") : (a ? "...ki" : "...ik");
      const char* const other = before_b ? (b ? "j...k" : "k...j") : (b ? "...jk" : "...kj");
      SetString(Add(node, "Einsum", {node.input(0), right}, out), "equation",
                absl::StrCat(left, ",", other, "->...ij"));
    } else {
      Add(node, "MatMul", {node.input(0), right}, out);
    }
    if (alpha != 1) Add(node, "Mul", {out, Number(out, alpha)}, node.output(0));
    return true;
  }

  // A Gemm or Conv with an activation behind it.
  bool WithActivation(const Node& node, const char* op) {
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
      Add(plain);
      return true;
    }
    const std::string before = Fresh(node.output(0));
    plain.set_output(0, before);
    Add(plain);
    if (activation == "Clip") {
      Add(node, "Clip", {before, Number(before, alpha), Number(before, beta)}, node.output(0));
      return true;
    }
    constexpr absl::string_view kKnown[] = {"Relu",        "Sigmoid", "Tanh",     "LeakyRelu",
                                            "HardSigmoid", "Elu",     "Softplus", "Softsign"};
    if (std::find(std::begin(kKnown), std::end(kKnown), activation) == std::end(kKnown)) {
      return false;
    }
    Node& last = Add(node, activation.c_str(), {before}, node.output(0));
    if (!std::isnan(alpha)) SetFloat(last, "alpha", alpha);
    if (!std::isnan(beta)) SetFloat(last, "beta", beta);
    return true;
  }
  bool Gemm(const Node& node) { return WithActivation(node, "Gemm"); }
  bool Conv(const Node& node) { return WithActivation(node, "Conv"); }

  bool RootMeanSquare(const Node& node, const std::string& x, const std::string& scale,
                      float epsilon) {
    const std::string mean = Reduce(node, "ReduceMean", Make(node, "Mul", {x, x}), -1);
    const std::string more = Make(node, "Add", {mean, Number(node.output(0), epsilon)});
    const std::string normal = Make(node, "Div", {x, Make(node, "Sqrt", {more})});
    Add(node, "Mul", {normal, scale}, node.output(0));
    return true;
  }
  bool Normalise(const Node& node) {
    return IntAttribute(node, "axis", -1) == -1 && OnlyFirst(node) &&
           RootMeanSquare(node, node.input(0), node.input(1),
                          FloatAttribute(node, "epsilon", 1e-5f));
  }
  // x + skip (+ bias), and the fourth output is that.
  std::string Skipped(const Node& node, int bias) {
    constexpr int kSum = 3;
    std::string sum = Make(node, "Add", {node.input(0), node.input(1)});
    if (Has(node, bias)) sum = Make(node, "Add", {sum, node.input(bias)});
    if (node.output_size() > kSum && !node.output(kSum).empty()) {
      Add(node, "Identity", {sum}, node.output(kSum));
    }
    return sum;
  }
  bool OtherStatistics(const Node& node) const {
    for (int i = 1; i < std::min(3, node.output_size()); ++i) {
      if (read_.contains(node.output(i)) && !node.output(i).empty()) return true;
    }
    return false;
  }
  bool SkipNormalise(const Node& node) {
    if (OtherStatistics(node)) return false;
    return RootMeanSquare(node, Skipped(node, 3), node.input(2),
                          FloatAttribute(node, "epsilon", 1e-5f));
  }
  bool SkipLayerNormalise(const Node& node) {
    if (OtherStatistics(node)) return false;
    std::vector<std::string> inputs = {Skipped(node, 4), node.input(2)};
    if (Has(node, 3)) inputs.push_back(node.input(3));
    SetFloat(Add(node, "LayerNormalization", inputs, node.output(0)), "epsilon",
             FloatAttribute(node, "epsilon", 1e-5f));
    return true;
  }

  // Sums of the rows of tables (words, places, segments), normalised; the second output is how many
  // words of each row the mask has.
  bool EmbedAndNormalise(const Node& node) {
    constexpr int kSegments = 1, kWords = 2, kPlaces = 3, kSegmentTable = 4, kScale = 5, kShift = 6,
                  kMask = 7, kPlaceIds = 8;
    const std::string& ids = node.input(0);
    std::string places = Has(node, kPlaceIds) ? node.input(kPlaceIds) : "";
    std::string sum = Make(node, "Gather", {node.input(kWords), ids});
    if (places.empty()) {
      const std::string rows = Integers(ids, {0});
      places = Make(node, "Slice", {node.input(kPlaces), rows, SizeOf(node, ids, 1), rows});
    } else {
      places = Make(node, "Gather", {node.input(kPlaces), places});
    }
    sum = Make(node, "Add", {sum, places});
    if (Has(node, kSegments) && Has(node, kSegmentTable)) {
      sum = Make(node, "Add",
                 {sum, Make(node, "Gather", {node.input(kSegmentTable), node.input(kSegments)})});
    }
    SetFloat(Add(node, "LayerNormalization", {sum, node.input(kScale), node.input(kShift)},
                 node.output(0)),
             "epsilon", FloatAttribute(node, "epsilon", 1e-12f));
    if (node.output_size() > 2 && !node.output(2).empty()) {
      Add(node, "Identity", {sum}, node.output(2));
    }
    if (node.output_size() < 2 || !read_.contains(node.output(1))) return true;
    if (!Has(node, kMask)) return false;
    Node& count = Add(node, "ReduceSum", {node.input(kMask)}, node.output(1));
    if (opset_ >= kAxesAreInputs) {
      count.add_input(Integers(ids, {1}));
    } else {
      SetInts(count, "axes", {1});
    }
    SetInt(count, "keepdims", 0);
    return true;
  }

  // ----------------------------------------------------------------------------- attention

  // [rows, steps, heads * width] -> [rows, heads, steps, width]
  std::string Heads(const Node& node, const std::string& x, int64_t heads) {
    const std::string shape = Integers(node.output(0), {0, 0, heads, -1});
    return Transposed(node, Make(node, "Reshape", {x, shape}), {0, 2, 1, 3});
  }
  std::string Joined(const Node& node, const std::string& x) {
    return Make(node, "Reshape",
                {Transposed(node, x, {0, 2, 1, 3}), Integers(node.output(0), {0, 0, -1})});
  }
  std::string SizeOf(const Node& node, const std::string& x, int64_t axis) {
    const std::string size = Fresh(node.output(0));
    AddSlice(node, Make(node, "Shape", {x}), 0, axis, axis + 1, size);
    return size;
  }
  struct Scores {
    float scale = 0;   // 0: 1 / sqrt(width)
    std::string mask;  // What is added, or booleans that are false where nothing is read.
    bool causal = false;
  };
  std::string Attend(const Node& node, const std::string& q, const std::string& k,
                     const std::string& v, const Scores& how) {
    constexpr float kNever = -1e30f;
    std::string scores = Make(node, "MatMul", {q, Transposed(node, k, {0, 1, 3, 2})});
    if (how.scale != 0) {
      scores = Make(node, "Mul", {scores, Number(scores, how.scale)});
    } else {
      scores = Make(node, "Div", {scores, Make(node, "Sqrt", {Float(node, SizeOf(node, q, 3))})});
    }
    if (how.causal) {
      const std::string shape = Fresh(scores), ones = Fresh(scores), some = Fresh(scores);
      SetInt(Add(node, "Concat", {SizeOf(node, q, 2), SizeOf(node, k, 2)}, shape), "axis", 0);
      Add(node, "Expand", {Number(scores, 1), shape}, ones);
      SetInt(Add(node, "Trilu", {ones}, some), "upper", 0);
      const std::string seen = Make(node, "Greater", {some, Number(scores, 0)});
      scores = Make(node, "Where", {seen, scores, Number(scores, kNever)});
    }
    if (!how.mask.empty()) {
      scores = types_.TypeOf(how.mask) == onnx::TensorProto::BOOL
                   ? Make(node, "Where", {how.mask, scores, Number(scores, kNever)})
                   : Make(node, "Add", {scores, how.mask});
    }
    const std::string weights = Fresh(scores);
    SetInt(Add(node, "Softmax", {scores}, weights), "axis", -1);
    return Make(node, "MatMul", {weights, v});
  }

  // What hides padding, added to scores: the mask says how many keys of a row are none, or is not 0
  // where a key is none.  Empty: a mask of other ranks.
  std::string Padding(const Node& node, const std::string& mask, const std::string& keys) {
    const auto rank = ranks_.find(mask);
    if (rank == ranks_.end() || rank->second < 1 || rank->second > 2) return "";
    const bool lengths = rank->second == 1;
    std::string seen =
        Make(node, "Reshape", {mask, Integers(mask, {0, 1, 1, lengths ? int64_t{1} : -1})});
    if (lengths) {
      const std::string last = Make(node, "Squeeze", {SizeOf(node, keys, 2)});
      const std::string first = Make(node, "Squeeze", {Integers(mask, {0})});
      const std::string step = Make(node, "Squeeze", {Integers(mask, {1})});
      const std::string places = Make(node, "Range", {first, last, step});
      seen = Make(node, "Less", {Float(node, places), Float(node, seen)});
    } else {
      seen = Make(node, "Greater", {Float(node, seen), Number(mask, 0)});
    }
    const float filter = FloatAttribute(node, "mask_filter_value", -10000);
    return Make(node, "Where", {seen, Number(mask, 0), Number(mask, filter)});
  }

  // The node's output is attention of queries, keys and values, whose heads are side by side in the
  // last dimension (0: have a dimension of their own).  `mask`: which input may be one; `padding`:
  // which one may say it of keys (0: none); `causal`: the attribute that says so.
  bool AddAttention(const Node& node, std::array<std::string, 3> parts, int64_t heads, int mask,
                    int padding, const char* causal) {
    if (heads > 0) {
      for (std::string& part : parts) part = Heads(node, part, heads);
    }
    std::string hidden = Has(node, mask) ? node.input(mask) : "";
    if (padding != 0 && Has(node, padding)) {
      const std::string keys = Padding(node, node.input(padding), parts[1]);
      if (keys.empty()) return false;
      hidden = hidden.empty() ? keys : Make(node, "Add", {hidden, keys});
    }
    const std::string mixed = Attend(node, parts[0], parts[1], parts[2],
                                     {.scale = FloatAttribute(node, "scale", 0),
                                      .mask = hidden,
                                      .causal = IntAttribute(node, causal, 0) != 0});
    Add(node, "Identity", {heads > 0 ? Joined(node, mixed) : mixed}, node.output(0));
    return true;
  }
  // com.microsoft: one weight for queries, keys and values.
  bool FusedAttention(const Node& node) {
    constexpr int kPadding = 3, kPast = 4, kScores = 5;
    const int64_t heads = IntAttribute(node, "num_heads", 0);
    if (heads < 1 || Has(node, kPast) || !EndsBefore(node, kScores + 1) || !OnlyFirst(node) ||
        FindAttribute(node, "qkv_hidden_sizes") != nullptr) {
      return false;
    }
    const std::string all =
        Make(node, "Add", {Make(node, "MatMul", {node.input(0), node.input(1)}), node.input(2)});
    const std::array<std::string, 3> parts = {Fresh(all), Fresh(all), Fresh(all)};
    Node& split = Add(node, "Split", {all}, parts[0]);
    split.add_output(parts[1]);
    split.add_output(parts[2]);
    SetInt(split, "axis", 2);
    if (opset_ >= 18) SetInt(split, "num_outputs", 3);
    return AddAttention(node, parts, heads, kScores, kPadding, "unidirectional");
  }
  bool SeveralHeads(const Node& node) {
    constexpr int kBias = 3, kPadding = 4, kScores = 5, kPast = 6;
    const int64_t heads = IntAttribute(node, "num_heads", 0);
    if (heads < 1 || !EndsBefore(node, kPast) || !OnlyFirst(node)) return false;
    std::array<std::string, 3> parts = {node.input(0), node.input(1), node.input(2)};
    if (Has(node, kBias)) {
      const onnx::TensorProto* const bias = FindTensor(node.input(kBias));
      if (bias == nullptr || bias->dims_size() != 1 || bias->dims(0) % 3 != 0) return false;
      const int64_t width = bias->dims(0) / 3;
      for (size_t i = 0; i < parts.size(); ++i) {
        const std::string own = Fresh(parts[i]);
        const auto part = static_cast<int64_t>(i);
        AddSlice(node, node.input(kBias), 0, part * width, (part + 1) * width, own);
        parts[i] = Make(node, "Add", {parts[i], own});
      }
    }
    return AddAttention(node, parts, heads, kScores, kPadding, "unidirectional");
  }
  // Of operator set 23: of rank 4, or of rank 3 with the heads as an attribute.
  bool Attention(const Node& node) {
    constexpr int kMask = 3, kPast = 4;
    const int64_t heads = IntAttribute(node, "q_num_heads", 0);
    if (IntAttribute(node, "kv_num_heads", heads) != heads || !EndsBefore(node, kPast) ||
        FloatAttribute(node, "softcap", 0) != 0 || !OnlyFirst(node)) {
      return false;
    }
    return AddAttention(node, {node.input(0), node.input(1), node.input(2)}, heads, kMask, 0,
                        "is_causal");
  }

  // ---------------------------------------------------------------------- quantised models

  // Whole numbers (scales, places of zero) as floats that x broadcasts with: of one number, or of
  // one for each entry of the last axis.
  std::optional<std::string> PerAxis(const Node& node, int i, int64_t axis) {
    const onnx::TensorProto* const tensor = FindTensor(node.input(i));
    if (tensor == nullptr) return std::nullopt;
    int64_t count = 1;
    for (const int64_t size : tensor->dims()) count *= size;
    if (count != 1 && axis != -1) return std::nullopt;
    return Float(node, node.input(i));
  }
  std::optional<std::string> Dequantised(const Node& node, int x, int scale, int zero,
                                         int64_t axis) {
    const std::optional<std::string> by = PerAxis(node, scale, axis);
    if (!by.has_value()) return std::nullopt;
    std::string whole = Float(node, node.input(x));
    if (Has(node, zero)) {
      const std::optional<std::string> from = PerAxis(node, zero, axis);
      if (!from.has_value()) return std::nullopt;
      whole = Make(node, "Sub", {whole, *from});
    }
    return Make(node, "Mul", {whole, *by});
  }
  bool AddQuantised(const Node& node, const std::string& x, int scale, int zero, int64_t axis) {
    const int type =
        Has(node, zero)
            ? types_.TypeOf(node.input(zero))
            : static_cast<int>(IntAttribute(node, "output_dtype", onnx::TensorProto::UINT8));
    const auto range = RangeOf(type == 0 ? onnx::TensorProto::UINT8 : type);
    const std::optional<std::string> by = PerAxis(node, scale, axis);
    if (!range.has_value() || !by.has_value()) return false;
    std::string whole = Make(node, "Round", {Make(node, "Div", {x, *by})});
    if (Has(node, zero)) {
      const std::optional<std::string> from = PerAxis(node, zero, axis);
      if (!from.has_value()) return false;
      whole = Make(node, "Add", {whole, *from});
    }
    const std::string least = Number(whole, range->first), most = Number(whole, range->second);
    Add(node, "Min", {Make(node, "Max", {whole, least}), most}, node.output(0));
    return true;
  }
  bool Quantize(const Node& node) {
    return AddQuantised(node, node.input(0), 1, 2, IntAttribute(node, "axis", 1));
  }
  bool Dequantize(const Node& node) {
    if (DequantizeConstant(node)) return true;
    const auto out = Dequantised(node, 0, 1, 2, IntAttribute(node, "axis", 1));
    if (out.has_value()) Add(node, "Identity", {*out}, node.output(0));
    return out.has_value();
  }
  // Weights, at once: they may be large, and have a scale per entry of any axis.
  bool DequantizeConstant(const Node& node) {
    std::optional<Constant> parts[3];
    for (int i = 0; i < std::min(3, node.input_size()); ++i) {
      const onnx::TensorProto* const tensor = FindTensor(node.input(i));
      if (tensor == nullptr) return node.input(i).empty() && i == 2;
      absl::StatusOr<Constant> constant = ReadTensor(*tensor);
      if (!constant.ok()) return false;
      parts[i] = *std::move(constant);
    }
    const std::vector<int64_t> sizes = parts[0]->sizes();
    int64_t axis = IntAttribute(node, "axis", 1), inner = 1;
    const auto rank = static_cast<int64_t>(sizes.size());
    if (axis < 0) axis += rank;
    const int64_t scales = parts[1]->elements();
    if (scales < 1 || !parts[1]->is_float) return false;
    if (scales > 1 && (axis < 0 || axis >= rank || sizes[static_cast<size_t>(axis)] != scales)) {
      return false;
    }
    for (int64_t d = axis + 1; scales > 1 && d < rank; ++d) inner *= sizes[static_cast<size_t>(d)];
    if (parts[2].has_value() && parts[2]->elements() != scales) return false;
    std::vector<float> values;
    const int64_t count = parts[0]->elements();
    values.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = scales > 1 ? i / inner % scales : 0;
      const double zero = parts[2].has_value() ? parts[2]->number(at) : 0;
      values.push_back(static_cast<float>(parts[0]->number(i) - zero) * parts[1]->f32(at));
    }
    const std::string flat = Floats(node.output(0), values);
    Add(node, "Reshape", {flat, Integers(node.output(0), sizes)}, node.output(0));
    return true;
  }
  bool IntegerProduct(const Node& node) {
    std::string sides[2];
    for (int i = 0; i < 2; ++i) {
      sides[i] = Float(node, node.input(i));
      if (!Has(node, i + 2)) continue;
      const std::optional<std::string> from = PerAxis(node, i + 2, i == 1 ? -1 : 0);
      if (!from.has_value()) return false;
      sides[i] = Make(node, "Sub", {sides[i], *from});
    }
    Add(node, "MatMul", {sides[0], sides[1]}, node.output(0));
    return true;
  }
  bool QuantisedProduct(const Node& node) {
    const auto a = Dequantised(node, 0, 1, 2, 0), b = Dequantised(node, 3, 4, 5, -1);
    return a.has_value() && b.has_value() &&
           AddQuantised(node, Make(node, "MatMul", {*a, *b}), 6, 7, 0);
  }

  // ---------------------------------------------------------------- scikit-learn's exporters

  bool Scale(const Node& node) {
    const std::vector<float> offset = FloatsAttribute(node, "offset"),
                             scale = FloatsAttribute(node, "scale");
    std::string x = Float(node, node.input(0));
    if (!offset.empty()) x = Make(node, "Sub", {x, Floats(x, offset)});
    if (!scale.empty()) x = Make(node, "Mul", {x, Floats(x, scale)});
    Add(node, "Identity", {x}, node.output(0));
    return true;
  }
  // x / size, but x, which is zeros, where its size is 0.
  void AddNormal(const Node& node, const std::string& x, const std::string& size) {
    const std::string some = Fresh(node.output(0));
    SetInt(Add(node, "Cast", {size}, some), "to", onnx::TensorProto::BOOL);
    Add(node, "Where", {some, Make(node, "Div", {x, size}), x}, node.output(0));
  }
  bool Normal(const Node& node) {
    const std::string norm = StringAttribute(node, "norm", "MAX"), x = Float(node, node.input(0));
    const char* const op = norm == "L1" ? "ReduceL1" : norm == "L2" ? "ReduceL2" : "ReduceMax";
    AddNormal(node, x, Reduce(node, op, x, -1));
    return true;
  }
  bool Impute(const Node& node) {
    const std::vector<float> values = FloatsAttribute(node, "imputed_value_floats");
    const std::string& x = node.input(0);
    if (values.empty() || !IsPlainFloat(types_.TypeOf(x))) return false;
    const float missing = FloatAttribute(node, "replaced_value_float", 0);
    const std::string is = std::isnan(missing) ? Make(node, "IsNaN", {x})
                                               : Make(node, "Equal", {x, Number(x, missing)});
    Add(node, "Where", {is, Floats(x, values), x}, node.output(0));
    return true;
  }
  bool Binarize(const Node& node) {
    const float threshold = FloatAttribute(node, "threshold", 0);
    const std::string& x = node.input(0);
    Add(node, "Identity", {Float(node, Make(node, "Greater", {x, Number(x, threshold)}))},
        node.output(0));
    return true;
  }
  bool JoinFeatures(const Node& node) {
    std::vector<std::string> columns;
    for (const std::string& input : node.input()) columns.push_back(Float(node, input));
    SetInt(Add(node, "Concat", columns, node.output(0)), "axis", 1);
    return true;
  }
  bool PickFeatures(const Node& node) {
    if (FindTensor(node.input(0)) != nullptr) return PickLabels(node);
    SetInt(Add(node, "Gather", {node.input(0), node.input(1)}, node.output(0)), "axis", -1);
    return FindTensor(node.input(1)) != nullptr;
  }
  // Entries of a list, one for each row, as one row: labels of the best classes.
  bool PickLabels(const Node& node) {
    const onnx::TensorProto& labels = *FindTensor(node.input(0));
    if (labels.dims_size() != 1) return false;
    const std::string places =
        Make(node, "Reshape", {node.input(1), Integers(node.output(0), {-1})});
    AddOnAxis(node, "Unsqueeze", Make(node, "Gather", {node.input(0), places}), 0, node.output(0));
    return true;
  }
  bool OneHotOf(const Node& node) {
    const std::vector<int64_t> categories = IntsAttribute(node, "cats_int64s");
    if (categories.empty() || IntAttribute(node, "zeros", 1) == 0) return false;
    std::string wide = Fresh(node.output(0)), x = node.input(0);
    AddOnAxis(node, "Unsqueeze", x, -1, wide);
    const std::string same = Make(node, "Equal", {wide, Integers(wide, categories)});
    Add(node, "Identity", {Float(node, same)}, node.output(0));
    return true;
  }
  // x * coefficients + intercepts; empty: they do not fit.
  std::string Linear(const Node& node, int64_t outputs) {
    const std::vector<float> weights = FloatsAttribute(node, "coefficients");
    const std::vector<float> bias = FloatsAttribute(node, "intercepts");
    const auto count = static_cast<int64_t>(weights.size());
    if (outputs < 1 || count == 0 || count % outputs != 0 ||
        (!bias.empty() && static_cast<int64_t>(bias.size()) != outputs)) {
      return "";
    }
    const std::string x = Float(node, node.input(0));
    const std::string rows =
        Make(node, "Reshape", {Floats(x, weights), Integers(x, {outputs, count / outputs})});
    const std::string product = Make(node, "MatMul", {x, Transposed(node, rows, {1, 0})});
    return bias.empty() ? product : Make(node, "Add", {product, Floats(x, bias)});
  }
  bool AddTransformed(const Node& node, const std::string& scores, const std::string& out) {
    const std::string how = StringAttribute(node, "post_transform", "NONE");
    if (how == "NONE") Add(node, "Identity", {scores}, out);
    if (how == "LOGISTIC") Add(node, "Sigmoid", {scores}, out);
    if (how == "SOFTMAX") SetInt(Add(node, "Softmax", {scores}, out), "axis", -1);
    return how == "NONE" || how == "LOGISTIC" || how == "SOFTMAX";
  }
  // Runtimes disagree on what else becomes of a regression's sums.
  bool AddRegression(const Node& node, const std::string& scores) {
    if (scores.empty() || StringAttribute(node, "post_transform", "NONE") != "NONE") return false;
    Add(node, "Identity", {scores}, node.output(0));
    return true;
  }
  bool LinearRegressor(const Node& node) {
    return AddRegression(node, Linear(node, IntAttribute(node, "targets", 1)));
  }
  bool LinearClassifier(const Node& node) {
    const std::vector<int64_t> labels = IntsAttribute(node, "classlabels_ints");
    const onnx::AttributeProto* const names = FindAttribute(node, "classlabels_strings");
    const int64_t classes = names != nullptr && labels.empty()
                                ? names->strings_size()
                                : static_cast<int64_t>(labels.size());
    const std::string scores = Linear(node, classes);
    if (scores.empty() || (labels.empty() && read_.contains(node.output(0)))) return false;
    AddLabels(node, scores, labels);
    return node.output_size() < 2 || AddTransformed(node, scores, node.output(1));
  }

  // The sums of the leaves that a row reaches, as a regression (without a domain) that transforms
  // nothing; empty: of other sums.
  std::string Leaves(const Node& node, const std::string& kind, int64_t outputs) {
    const std::string how = StringAttribute(node, "aggregate_function", "SUM");
    if (how != "SUM" && how != "AVERAGE") return "";
    const std::string x = Float(node, node.input(0)), sums = Fresh(node.output(0));
    Node& plain = Add(node, "TreeEnsembleRegressor", {x}, sums);
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      const std::string& name = attribute.name();
      const bool of_leaves = absl::StartsWith(name, absl::StrCat(kind, "_"));
      if (!of_leaves && !absl::StartsWith(name, "nodes_") && name != "base_values" &&
          name != "aggregate_function") {
        continue;
      }
      onnx::AttributeProto& own = *plain.add_attribute() = attribute;
      if (of_leaves) own.set_name(absl::StrCat("target", name.substr(kind.size())));
    }
    SetInt(plain, "n_targets", outputs);
    return sums;
  }
  bool TreeRegressor(const Node& node) {
    return AddRegression(node, Leaves(node, "target", IntAttribute(node, "n_targets", 1)));
  }
  bool TreeClassifier(const Node& node) {
    const std::vector<int64_t> labels = IntsAttribute(node, "classlabels_int64s");
    const std::vector<int64_t> ids = IntsAttribute(node, "class_ids");
    const int64_t classes = ClassesOf(node);
    const bool labelled = read_.contains(node.output(0));
    if (ids.empty() || (labels.empty() && labelled)) return false;
    const bool binary = classes == 2;
    if (binary && std::all_of(ids.begin(), ids.end(), [](int64_t id) { return id == 0; })) {
      return BinaryTrees(node, labels);
    }
    // Of two classes runtimes disagree on the label.
    const std::string scores = binary && labelled ? "" : Leaves(node, "class", classes);
    if (scores.empty()) return false;
    AddLabels(node, scores, labels);
    return node.output_size() < 2 || AddTransformed(node, scores, node.output(1));
  }
  void AddLabels(const Node& node, const std::string& scores, const std::vector<int64_t>& labels) {
    if (labels.empty()) return;
    const std::string best = Fresh(node.output(0));
    Node& most = Add(node, "ArgMax", {scores}, best);
    SetInt(most, "axis", 1);
    SetInt(most, "keepdims", 0);
    Add(node, "Gather", {Integers(best, labels), best}, node.output(0));
  }
  // Of two classes the leaves tell one: LightGBM's and XGBoost's logistic trees.
  bool BinaryTrees(const Node& node, const std::vector<int64_t>& labels) {
    const std::string score = Leaves(node, "class", 1);
    const std::vector<float> weights = FloatsAttribute(node, "class_weights");
    if (score.empty()) return false;
    const std::string how = StringAttribute(node, "post_transform", "NONE");
    const bool positive =
        std::all_of(weights.begin(), weights.end(), [](float weight) { return weight >= 0; });
    // Probabilities are of leaves that hold shares of the examples.
    if (how != "LOGISTIC" && (how != "NONE" || !positive)) return false;
    if (how == "LOGISTIC" && positive) return false;
    const std::string other =
        positive ? Make(node, "Sub", {Number(score, 1), score}) : Make(node, "Neg", {score});
    const std::string both = Fresh(score);
    SetInt(Add(node, "Concat", {other, score}, both), "axis", 1);
    AddLabels(node, both, labels);
    return node.output_size() < 2 || AddTransformed(node, both, node.output(1));
  }

  // ------------------------------------------------------------------------------- others

  bool Norm(const Node& node) {
    const int64_t p = IntAttribute(node, "p", 2);
    const char* const op = p == 1 ? "ReduceL1" : "ReduceL2";
    const std::string& x = node.input(0);
    AddNormal(node, x, Reduce(node, op, x, IntAttribute(node, "axis", -1)));
    return p == 1 || p == 2;
  }
  // Of an axis, by a constant condition.
  bool Compress(const Node& node) {
    const std::optional<std::vector<int64_t>> condition = Ints(node.input(1));
    if (!condition.has_value() || FindAttribute(node, "axis") == nullptr) return false;
    std::vector<int64_t> places;
    for (size_t i = 0; i < condition->size(); ++i) {
      if ((*condition)[i] != 0) places.push_back(static_cast<int64_t>(i));
    }
    SetInt(Add(node, "Gather", {node.input(0), Integers(node.output(0), places)}, node.output(0)),
           "axis", IntAttribute(node, "axis", 0));
    return true;
  }
  // A transposition, a sum or a diagonal of one tensor: times 1.
  bool SumOfOne(const Node& node) {
    const std::string equation = StringAttribute(node, "equation", "");
    const size_t arrow = equation.find("->");
    if (node.input_size() != 1 || arrow == std::string::npos) return false;
    char fresh = 'a';
    while (fresh < 'z' && equation.find(fresh) != std::string::npos) ++fresh;
    SetString(Add(node, "Einsum", {node.input(0), Floats(node.output(0), {1})}, node.output(0)),
              "equation",
              absl::StrCat(equation.substr(0, arrow), ",", std::string(1, fresh),
                           equation.substr(arrow)));
    return equation.find(fresh) == std::string::npos;
  }
  // A Loop that takes a step of each scanned value in each pass.
  bool Scan(const Node& node) {
    const onnx::AttributeProto* const body = FindAttribute(node, "body");
    const int scanned = static_cast<int>(IntAttribute(node, "num_scan_inputs", 0));
    const int states = node.input_size() - scanned;
    const std::vector<int64_t> axes = IntsAttribute(node, "scan_input_axes");
    for (const char* const name :
         {"scan_input_directions", "scan_output_directions", "scan_output_axes"}) {
      const std::vector<int64_t> others = IntsAttribute(node, name);
      if (std::any_of(others.begin(), others.end(), [](int64_t value) { return value != 0; })) {
        return false;
      }
    }
    if (body == nullptr || scanned < 1 || states < 0 || opset_ < 10 ||
        body->g().input_size() != node.input_size() ||
        (!axes.empty() && static_cast<int>(axes.size()) != scanned)) {
      return false;
    }
    const auto axis_of = [&](int i) { return axes.empty() ? 0 : axes[static_cast<size_t>(i)]; };
    if (std::any_of(axes.begin(), axes.end(), [](int64_t axis) { return axis < 0; })) return false;
    const std::string on = Fresh(node.output(0)), pass = Fresh(on), still = Fresh(on);
    SetInt(Add(node, "Cast", {Integers(on, {1})}, on), "to", onnx::TensorProto::BOOL);
    const std::string passes = SizeOf(node, node.input(states), axis_of(0));
    Node& loop = Add(node, "Loop", {passes, on}, node.output(0));
    for (int i = 1; i < node.output_size(); ++i) loop.add_output(node.output(i));
    onnx::AttributeProto& steps = *loop.add_attribute() = *body;
    onnx::GraphProto& graph = *steps.mutable_g();
    graph.clear_input();
    graph.clear_node();
    graph.clear_output();
    graph.add_input()->set_name(pass);
    graph.add_input()->set_name(still);
    graph.add_output()->set_name(still);
    for (int i = 0; i < node.input_size(); ++i) {
      const onnx::ValueInfoProto& given = body->g().input(i);
      if (i < states) {
        loop.add_input(node.input(i));
        *graph.add_input() = given;
        continue;
      }
      Node& step = AddNode("Gather", node.name(), {node.input(i), pass}, given.name(),
                           *graph.mutable_node());
      SetInt(step, "axis", axis_of(i - states));
    }
    graph.mutable_node()->MergeFrom(body->g().node());
    graph.mutable_output()->MergeFrom(body->g().output());
    return true;
  }
  bool Scatter(const Node& node) {
    Node plain = node;
    plain.set_op_type("ScatterElements");
    Add(plain);
    return true;
  }

  std::set<std::string> read_;
  std::map<std::string, int> ranks_;  // Those that are known.
};

constexpr char kMicrosoft[] = "com.microsoft", kMl[] = "ai.onnx.ml";

const CompositeWriter::Row CompositeWriter::kRows[] = {
    {kMicrosoft, "Gelu", 1, &CompositeWriter::Gelu},
    {kMicrosoft, "BiasGelu", 2, &CompositeWriter::BiasGelu},
    {kMicrosoft, "FastGelu", 1, &CompositeWriter::FastGelu},
    {kMicrosoft, "QuickGelu", 1, &CompositeWriter::QuickGelu},
    {kMicrosoft, "FusedMatMul", 2, &CompositeWriter::MatMul},
    {kMicrosoft, "FusedGemm", 2, &CompositeWriter::Gemm},
    {kMicrosoft, "FusedConv", 2, &CompositeWriter::Conv},
    {kMicrosoft, "SkipLayerNormalization", 3, &CompositeWriter::SkipLayerNormalise},
    {kMicrosoft, "SkipSimplifiedLayerNormalization", 3, &CompositeWriter::SkipNormalise},
    {kMicrosoft, "EmbedLayerNormalization", 7, &CompositeWriter::EmbedAndNormalise},
    {kMicrosoft, "Attention", 3, &CompositeWriter::FusedAttention},
    {kMicrosoft, "MultiHeadAttention", 3, &CompositeWriter::SeveralHeads},
    {kMicrosoft, "QuantizeLinear", 2, &CompositeWriter::Quantize},
    {kMicrosoft, "DequantizeLinear", 2, &CompositeWriter::Dequantize},
    {"", "QuantizeLinear", 2, &CompositeWriter::Quantize},
    {"", "DequantizeLinear", 2, &CompositeWriter::Dequantize},
    {"", "MatMulInteger", 2, &CompositeWriter::IntegerProduct},
    {"", "QLinearMatMul", 8, &CompositeWriter::QuantisedProduct},
    {"", "SimplifiedLayerNormalization", 2, &CompositeWriter::Normalise},
    {"", "RMSNormalization", 2, &CompositeWriter::Normalise},
    {"", "Attention", 3, &CompositeWriter::Attention},
    {"", "LpNormalization", 1, &CompositeWriter::Norm},
    {"", "Einsum", 1, &CompositeWriter::SumOfOne},
    {"", "Compress", 2, &CompositeWriter::Compress},
    {"", "Scan", 1, &CompositeWriter::Scan},
    {"", "Scatter", 3, &CompositeWriter::Scatter},
    {kMl, "Scaler", 1, &CompositeWriter::Scale},
    {kMl, "Normalizer", 1, &CompositeWriter::Normal},
    {kMl, "Imputer", 1, &CompositeWriter::Impute},
    {kMl, "Binarizer", 1, &CompositeWriter::Binarize},
    {kMl, "FeatureVectorizer", 1, &CompositeWriter::JoinFeatures},
    {kMl, "ArrayFeatureExtractor", 2, &CompositeWriter::PickFeatures},
    {kMl, "OneHotEncoder", 1, &CompositeWriter::OneHotOf},
    {kMl, "LinearRegressor", 1, &CompositeWriter::LinearRegressor},
    {kMl, "LinearClassifier", 1, &CompositeWriter::LinearClassifier},
    {kMl, "TreeEnsembleRegressor", 1, &CompositeWriter::TreeRegressor},
    {kMl, "TreeEnsembleClassifier", 1, &CompositeWriter::TreeClassifier},
};

bool CompositeWriter::Replace(const Node& node) {
  for (const Row& row : kRows) {
    const bool domain =
        node.domain() == row.domain || (*row.domain == '\0' && node.domain() == "ai.onnx");
    if (!domain || node.op_type() != row.op) continue;
    for (int i = 0; i < row.inputs; ++i) {
      if (!Has(node, i)) return false;
    }
    return (this->*row.write)(node);
  }
  return false;
}

}  // namespace

void WriteComposites(onnx::GraphProto& graph, int64_t opset) {
  CompositeWriter(graph, opset).Run();
}

std::string WhyNot(const Node& node) {
  const std::string& domain = node.domain();
  if (node.op_type() == "DynamicQuantizeLinear") {
    return "quantises by the largest value of the request's rows, so that an ad's score depends on "
           "the others; convert the model as it was before it was quantised (precision: INT8 of "
           "the manifest quantises it here)";
  }
  if (node.op_type() == "ZipMap") return "maps; export the model with the option zipmap: False";
  if (domain.rfind(kMicrosoft, 0) == 0) {
    return absl::StrCat("of ", domain, " with these inputs: an operator of ONNX Runtime's ",
                        "optimiser; convert the model that it was made of");
  }
  if (node.op_type() == "TreeEnsembleRegressor" || node.op_type() == "TreeEnsembleClassifier") {
    return "runtimes disagree on a regression's post_transform and on the label of two classes "
           "that both have leaves; strings are no labels here, and trees are added or averaged";
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
