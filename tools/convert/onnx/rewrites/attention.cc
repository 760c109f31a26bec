// Attention as one operator, written by others.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>
#include <vector>

#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/rewrites/composite_writer.h"

namespace ulfd::convert {
namespace {

using Node = onnx::NodeProto;

// [rows, steps, heads * width] -> [rows, heads, steps, width]
std::string Heads(CompositeWriter& w, const Node& node, const std::string& x, int64_t heads) {
  const std::string shape = w.Integers(node.output(0), {0, 0, heads, -1});
  return w.Transposed(node, w.Make(node, "Reshape", {x, shape}), {0, 2, 1, 3});
}

std::string Joined(CompositeWriter& w, const Node& node, const std::string& x) {
  return w.Make(node, "Reshape",
                {w.Transposed(node, x, {0, 2, 1, 3}), w.Integers(node.output(0), {0, 0, -1})});
}

// Each head [rows, heads, steps, width] as often as there are heads of queries for it.
std::string HeadForEachQuery(CompositeWriter& w, const Node& node, const std::string& x,
                             const std::string& q) {
  const std::string apart = w.Fresh(x), times = w.Fresh(x), shape = w.Fresh(x);
  const std::string one = w.Integers(x, {1}), heads = w.SizeOf(node, q, 1);
  w.AddOnAxis(node, "Unsqueeze", x, 2, apart);
  SetInt(w.Add(node, "Concat",
               {one, one, w.Make(node, "Div", {heads, w.SizeOf(node, x, 1)}), one, one}, times),
         "axis", 0);
  SetInt(w.Add(node, "Concat",
               {w.Integers(x, {0}), heads, w.SizeOf(node, x, 2), w.SizeOf(node, x, 3)}, shape),
         "axis", 0);
  return w.Make(node, "Reshape", {w.Make(node, "Expand", {apart, times}), shape});
}

struct Scores {
  float scale = 0;   // 0: 1 / sqrt(width)
  std::string mask;  // What is added, or booleans that are false where nothing is read.
  bool causal = false;
};
std::string Attend(CompositeWriter& w, const Node& node, const std::string& q, const std::string& k,
                   const std::string& v, const Scores& how) {
  constexpr float kNever = -1e30f;
  std::string scores = w.Make(node, "MatMul", {q, w.Transposed(node, k, {0, 1, 3, 2})});
  if (how.scale != 0) {
    scores = w.Make(node, "Mul", {scores, w.Number(scores, how.scale)});
  } else {
    scores =
        w.Make(node, "Div", {scores, w.Make(node, "Sqrt", {w.Float(node, w.SizeOf(node, q, 3))})});
  }
  const bool hides = w.TypeOf(how.mask) == onnx::TensorProto::BOOL;
  std::vector<std::string> seen;
  if (hides) seen.push_back(how.mask);
  if (!how.mask.empty() && !hides) scores = w.Make(node, "Add", {scores, how.mask});
  if (how.causal) {
    const std::string shape = w.Fresh(scores), ones = w.Fresh(scores), some = w.Fresh(scores);
    // Where there are more keys than queries, ONNX Runtime shows them all to the last query alone.
    const std::string& keys = node.domain() == kMicrosoft ? q : k;
    SetInt(w.Add(node, "Concat", {w.SizeOf(node, q, 2), w.SizeOf(node, keys, 2)}, shape), "axis",
           0);
    w.Add(node, "Expand", {w.Number(scores, 1), shape}, ones);
    SetInt(w.Add(node, "Trilu", {ones}, some), "upper", 0);
    seen.push_back(w.Make(node, "Greater", {some, w.Number(scores, 0)}));
  }
  const auto cover = [&](std::string x, float hidden) {
    for (const std::string& mask : seen) {
      x = w.Make(node, "Where", {mask, x, w.Number(x, hidden)});
    }
    return x;
  };
  scores = cover(scores, kNever);
  std::string weights = w.Fresh(scores);
  SetInt(w.Add(node, "Softmax", {scores}, weights), "axis", -1);
  // A query that may see no key has zeros.
  if (hides) weights = cover(weights, 0);
  return w.Make(node, "MatMul", {weights, v});
}

// What hides padding, added to scores: the mask says how many keys of a row are none, or is not 0
// where a key is none.  Empty: a mask of other ranks.
std::string Padding(CompositeWriter& w, const Node& node, const std::string& mask,
                    const std::string& keys) {
  const int rank = w.RankOf(mask);
  if (rank < 1 || rank > 2) return "";
  const bool lengths = rank == 1;
  std::string seen =
      w.Make(node, "Reshape", {mask, w.Integers(mask, {0, 1, 1, lengths ? int64_t{1} : -1})});
  if (lengths) {
    const std::string last = w.Make(node, "Squeeze", {w.SizeOf(node, keys, 2)});
    const std::string first = w.Make(node, "Squeeze", {w.Integers(mask, {0})});
    const std::string step = w.Make(node, "Squeeze", {w.Integers(mask, {1})});
    const std::string places = w.Make(node, "Range", {first, last, step});
    seen = w.Make(node, "Less", {w.Float(node, places), w.Float(node, seen)});
  } else {
    seen = w.Make(node, "Greater", {w.Float(node, seen), w.Number(mask, 0)});
  }
  const float filter = FloatAttribute(node, "mask_filter_value", -10000);
  return w.Make(node, "Where", {seen, w.Number(mask, 0), w.Number(mask, filter)});
}

// The node's output is attention of queries, keys and values, whose heads are side by side in the
// last dimension (0: have a dimension of their own); several of the queries may share one of the
// keys and values.  `mask`: which input may be one; `padding`:
// which one may say it of keys (0: none); `causal`: the attribute that says so.
bool AddAttention(CompositeWriter& w, const Node& node, std::array<std::string, 3> parts,
                  int64_t heads, int64_t kv_heads, int mask, int padding, const char* causal) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (heads > 0) parts[i] = Heads(w, node, parts[i], i == 0 ? heads : kv_heads);
    if (i > 0 && (heads == 0 || heads != kv_heads)) {
      parts[i] = HeadForEachQuery(w, node, parts[i], parts[0]);
    }
  }
  std::string hidden = Has(node, mask) ? node.input(mask) : "";
  if (padding != 0 && Has(node, padding)) {
    const std::string keys = Padding(w, node, node.input(padding), parts[1]);
    if (keys.empty()) return false;
    hidden = hidden.empty() ? keys : w.Make(node, "Add", {hidden, keys});
  }
  const std::string mixed = Attend(w, node, parts[0], parts[1], parts[2],
                                   {.scale = FloatAttribute(node, "scale", 0),
                                    .mask = hidden,
                                    .causal = IntAttribute(node, causal, 0) != 0});
  w.Add(node, "Identity", {heads > 0 ? Joined(w, node, mixed) : mixed}, node.output(0));
  return true;
}

// com.microsoft: one weight for queries, keys and values.
bool FusedAttention(CompositeWriter& w, const Node& node) {
  constexpr int kPadding = 3, kPast = 4, kScores = 5;
  const int64_t heads = IntAttribute(node, "num_heads", 0);
  if (heads < 1 || Has(node, kPast) || !EndsBefore(node, kScores + 1) || !w.OnlyFirst(node) ||
      FindAttribute(node, "qkv_hidden_sizes") != nullptr ||
      IntAttribute(node, "do_rotary", 0) != 0) {
    return false;
  }
  const std::string all =
      w.Make(node, "Add", {w.Make(node, "MatMul", {node.input(0), node.input(1)}), node.input(2)});
  const std::array<std::string, 3> parts = {w.Fresh(all), w.Fresh(all), w.Fresh(all)};
  Node& split = w.Add(node, "Split", {all}, parts[0]);
  split.add_output(parts[1]);
  split.add_output(parts[2]);
  SetInt(split, "axis", 2);
  if (w.opset() >= 18) SetInt(split, "num_outputs", 3);
  return AddAttention(w, node, parts, heads, heads, kScores, kPadding, "unidirectional");
}

bool SeveralHeads(CompositeWriter& w, const Node& node) {
  constexpr int kBias = 3, kPadding = 4, kScores = 5, kPast = 6;
  const int64_t heads = IntAttribute(node, "num_heads", 0);
  if (heads < 1 || !EndsBefore(node, kPast) || !w.OnlyFirst(node)) return false;
  std::array<std::string, 3> parts = {node.input(0), node.input(1), node.input(2)};
  if (Has(node, kBias)) {
    const onnx::TensorProto* const bias = w.FindTensor(node.input(kBias));
    if (bias == nullptr || bias->dims_size() != 1 || bias->dims(0) % 3 != 0) return false;
    const int64_t width = bias->dims(0) / 3;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string own = w.Fresh(parts[i]);
      const auto part = static_cast<int64_t>(i);
      w.AddSlice(node, node.input(kBias), 0, part * width, (part + 1) * width, own);
      parts[i] = w.Make(node, "Add", {parts[i], own});
    }
  }
  return AddAttention(w, node, parts, heads, heads, kScores, kPadding, "unidirectional");
}

// Of operator sets 23 to 25: of rank 4, or of rank 3 with the heads as an attribute.
bool Attention(CompositeWriter& w, const Node& node) {
  constexpr int kMask = 3, kPast = 4;
  const int64_t heads = IntAttribute(node, "q_num_heads", 0);
  const int64_t kv_heads = IntAttribute(node, "kv_num_heads", heads);
  const bool windows = IntAttribute(node, "left_window_size", -1) >= 0 ||
                       IntAttribute(node, "right_window_size", -1) >= 0;
  if (!EndsBefore(node, kPast) || FloatAttribute(node, "softcap", 0) != 0 || windows ||
      (heads == 0) != (kv_heads == 0) || !w.OnlyFirst(node)) {
    return false;
  }
  return AddAttention(w, node, {node.input(0), node.input(1), node.input(2)}, heads, kv_heads,
                      kMask, 0, "is_causal");
}

constexpr Composite kRows[] = {
    {kMicrosoft, "Attention", 3, FusedAttention},
    {kMicrosoft, "MultiHeadAttention", 3, SeveralHeads},
    {"", "Attention", 3, Attention},
};

}  // namespace

absl::Span<const Composite> AttentionComposites() { return kRows; }

}  // namespace ulfd::convert
