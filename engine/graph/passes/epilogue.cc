// What follows a fully connected layer value by value -> its epilogue, applied while the sums are
// still in registers.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/passes.h"
#include "engine/layers/checks.h"
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

}  // namespace

absl::Status FuseEpilogues(GraphEditor& editor) {
  for (int i = 0; i < editor.size(); ++i) {
    if (editor.semantics(i).op != Op::kFusedFc) continue;
    const Node& node = editor.node(i);
    const int reader = editor.OnlyReader(node.outputs[0]);
    if (reader < 0) continue;
    const FusedFcOptions& old = *editor.semantics(i).fused_fc;
    std::optional<FcEpilogue> joined = Join(old.epilogue, editor.semantics(reader), old.n());
    if (!joined.has_value()) continue;
    FusedFcOptions options = old;
    options.epilogue = *std::move(joined);
    std::string text = absl::StrCat(editor.node(reader).Label(), " as epilogue of ", node.Label());
    Node fused =
        editor.NewNode(reader, "", node.type, std::make_shared<FusedFc>(std::move(options)),
                       node.inputs, editor.node(reader).outputs);
    fused.name = node.name;
    RETURN_IF_ERROR(editor.Replace({i, reader}, reader, {std::move(fused)}, std::move(text)));
    --i;  // The next layer may join, too; it now stands here or later.
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine
