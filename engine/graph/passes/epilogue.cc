// What follows a fully connected layer value by value -> its epilogue, applied while the sums are
// still in registers.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/passes.h"
#include "engine/layers/fused/fused_fc.h"

namespace ulfd::engine {

namespace {

using Op = Semantics::Op;

// The n values of parameter `index`, one per column.
std::vector<float> PerColumn(const CyclicParams& params, int index, int64_t n) {
  std::vector<float> values(n);
  for (int64_t j = 0; j < n; ++j) values[j] = params.values[index][j % params.period];
  return values;
}

// 1 / sqrt(var + eps) per column, times `factor`; rounded as the layers themselves do.
std::vector<float> Inverse(const std::vector<float>& var, float eps, const float* factor) {
  std::vector<float> inverse(var.size());
  for (size_t j = 0; j < var.size(); ++j) {
    const double deviation = std::sqrt(double{var[j]} + double{eps});
    inverse[j] = static_cast<float>((factor == nullptr ? 1.0 : double{factor[j]}) / deviation);
  }
  return inverse;
}

// The epilogue with the function of `next` behind it.  nullopt: it cannot join.
std::optional<FcEpilogue> Join(FcEpilogue epilogue, const Semantics& next, int64_t n) {
  if (epilogue.activation != Activation::Kind::kNone) return std::nullopt;
  if (next.params != nullptr && n % next.params->period != 0) return std::nullopt;
  switch (next.op) {
    case Op::kRelu:
      epilogue.activation = Activation::Kind::kRelu;
      return epilogue;
    case Op::kSigmoid:
      epilogue.activation = Activation::Kind::kSigmoid;
      return epilogue;
    case Op::kTanh:
      epilogue.activation = Activation::Kind::kTanh;
      return epilogue;
    case Op::kPrelu:
      epilogue.activation = Activation::Kind::kPrelu;
      epilogue.slope = PerColumn(*next.params, 0, n);
      return epilogue;
    case Op::kDice:
      epilogue.activation = Activation::Kind::kDice;
      epilogue.gamma = PerColumn(*next.params, 0, n);
      epilogue.mean = PerColumn(*next.params, 1, n);
      epilogue.scale = Inverse(PerColumn(*next.params, 2, n), next.eps, nullptr);
      return epilogue;
    case Op::kBatchNorm: {
      if (epilogue.affine) return std::nullopt;
      const std::vector<float> gamma = PerColumn(*next.params, 1, n);
      epilogue.affine = true;
      epilogue.affine_beta = PerColumn(*next.params, 0, n);
      epilogue.affine_mean = PerColumn(*next.params, 2, n);
      epilogue.affine_scale = Inverse(PerColumn(*next.params, 3, n), next.eps, gamma.data());
      return epilogue;
    }
    default:
      return std::nullopt;
  }
}

// The reshape of n columns to as many, if nothing else reads them; -1: there is none.
int ViewOf(const GraphEditor& editor, ValueId columns, int64_t n) {
  const int reader = editor.OnlyReader(columns);
  if (reader < 0 || editor.semantics(reader).op != Op::kReshape) return -1;
  const Shape& shape = editor.shape(editor.node(reader).outputs[0]);
  return shape.rank() > 0 && shape[shape.rank() - 1] == Dim::Of(n) ? reader : -1;
}

absl::Status JoinReader(GraphEditor& editor, int index) {
  if (editor.semantics(index).op != Op::kFusedFc) return absl::OkStatus();
  const Node& node = editor.node(index);
  const FusedFcOptions& old = *editor.semantics(index).fused_fc;
  const int view = ViewOf(editor, node.outputs[0], old.n());
  const int reader = editor.OnlyReader(editor.node(view < 0 ? index : view).outputs[0]);
  if (reader < 0) return absl::OkStatus();
  std::optional<FcEpilogue> joined = Join(old.epilogue, editor.semantics(reader), old.n());
  if (!joined.has_value()) return absl::OkStatus();
  FusedFcOptions options = old;
  options.epilogue = *std::move(joined);
  std::string text = absl::StrCat(editor.node(reader).Label(), " as epilogue of ", node.Label());
  const std::vector<ValueId>& outputs = editor.node(reader).outputs;
  std::vector<Node> added;
  added.push_back(editor.NewNode(reader, "", node.type,
                                 std::make_shared<FusedFc>(std::move(options)), node.inputs,
                                 view < 0 ? outputs : node.outputs));
  added[0].name = node.name;
  if (view >= 0) {  // Now behind the epilogue.
    added.push_back(editor.node(view));
    added[1].outputs = outputs;
  }
  return editor.Replace(
      view < 0 ? std::vector<int>{index, reader} : std::vector<int>{index, view, reader}, reader,
      std::move(added), std::move(text));
}

}  // namespace

absl::Status FuseEpilogues(GraphEditor& editor) {
  return editor.ForEach([&](int index) { return JoinReader(editor, index); });
}

}  // namespace ulfd::engine
