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
    SetInt(w.Add(node, "Concat", {w.SizeOf(node, q, 2), w.SizeOf(node, k, 2)}, shape), "axis", 0);
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

// Of operator sets 23 to 25: of rank 4, or of rank 3 with the heads side by side in the last
// dimension; several of the queries may share one of the keys and values.
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
  std::array<std::string, 3> parts = {node.input(0), node.input(1), node.input(2)};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (heads > 0) parts[i] = Heads(w, node, parts[i], i == 0 ? heads : kv_heads);
    if (i > 0 && (heads == 0 || heads != kv_heads)) {
      parts[i] = HeadForEachQuery(w, node, parts[i], parts[0]);
    }
  }
  const std::string mixed = Attend(w, node, parts[0], parts[1], parts[2],
                                   {.scale = FloatAttribute(node, "scale", 0),
                                    .mask = Has(node, kMask) ? node.input(kMask) : "",
                                    .causal = IntAttribute(node, "is_causal", 0) != 0});
  w.Add(node, "Identity", {heads > 0 ? Joined(w, node, mixed) : mixed}, node.output(0));
  return true;
}

constexpr Composite kRows[] = {
    {"", "Attention", 3, Attention},
};

}  // namespace

absl::Span<const Composite> AttentionComposites() { return kRows; }

}  // namespace ulfd::convert
