// In which precision the steps of a plan compute their products with weights.
// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/precision.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/graph.h"
#include "engine/runtime/plan.h"
#include "engine/runtime/plan_info.h"
#include "proto/model_manifest.pb.h"

namespace ulfd::engine {
namespace {

namespace pb = ulfd::model::v1;

constexpr absl::string_view kTypes = "inner_product_layer, inner_product_layer_ex, gru_layer";

Precision FromProto(pb::Precision precision) {
  switch (precision) {
    case pb::PRECISION_BF16:
      return Precision::kBf16;
    case pb::PRECISION_AUTO:
      return Precision::kAuto;
    default:
      return Precision::kFp32;
  }
}

// By position in the file: whether the layer's products with weights can be computed in bf16.
std::vector<bool> HaveBf16(const Graph& graph, const Plan& written) {
  int layers = 0;
  for (const Node& node : graph.nodes) layers = std::max(layers, node.file_index + 1);
  std::vector<bool> have(layers, false);
  for (const Step& step : written.steps) {
    if (step.kernel->precision().has_value()) have[step.node->file_index] = true;
  }
  return have;
}

// What the layers of one name are asked for, by their positions in the file.
absl::Status Ask(const std::string& name, Precision precision,
                 absl::Span<const std::string> double_layers, const Graph& graph,
                 const std::vector<bool>& have_bf16, std::vector<std::optional<Precision>>& asked) {
  constexpr absl::string_view kNames = "manifest: layer_precision names ";
  bool found = false;
  for (const Node& node : graph.nodes) {
    if (name.empty() || node.name != name) continue;
    found = true;
    if (asked[node.file_index].has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(kNames, "\"", name, "\" twice"));
    }
    if (std::find(double_layers.begin(), double_layers.end(), name) != double_layers.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          kNames, node.Label(), ", which double_layers has computed in double; want one of them"));
    }
    if (!have_bf16[node.file_index]) {
      return absl::InvalidArgumentError(absl::StrCat(
          kNames, node.Label(), ", a type without products with weights; these are: ", kTypes));
    }
    asked[node.file_index] = precision;
  }
  if (found) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kNames, "\"", name, "\", which is no layer of the graph"));
}

// Of a step: what all of its layers agree to.
Precision Agreed(std::optional<Precision> before, Precision next) {
  if (!before.has_value() || *before == next) return next;
  return *before == Precision::kFp32 || next == Precision::kFp32 ? Precision::kFp32
                                                                 : Precision::kAuto;
}

}  // namespace

PrecisionChoice PrecisionOf(const pb::ModelManifest& manifest) {
  PrecisionChoice choice{.model = FromProto(manifest.precision())};
  for (const pb::LayerPrecision& some : manifest.layer_precision()) {
    for (const std::string& layer : some.layers()) {
      choice.layers.emplace_back(layer, FromProto(some.precision()));
    }
  }
  return choice;
}

absl::StatusOr<Precision> ParsePrecision(absl::string_view name) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kAuto}) {
    if (absl::EqualsIgnoreCase(name, Name(precision))) return precision;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("precision \"", name, "\", want auto, bf16 or fp32"));
}

absl::Status ChoosePrecisions(const PrecisionChoice& choice,
                              absl::Span<const std::string> double_layers, const Graph& graph,
                              const Plan& written, const Plan* optimised,
                              std::vector<std::string>& notices) {
  if (!choice.asks()) return absl::OkStatus();
  const std::vector<bool> have_bf16 = HaveBf16(graph, written);
  std::vector<std::optional<Precision>> asked(have_bf16.size());
  for (const auto& [name, precision] : choice.layers) {
    RETURN_IF_ERROR(Ask(name, precision, double_layers, graph, have_bf16, asked));
  }
  if (optimised == nullptr) return absl::OkStatus();
  if (!HasBf16()) {
    notices.push_back(
        "manifest: precision: everything is computed in fp32: this machine has no AVX512-BF16, or "
        "ULFD_ISA leaves it out");
    return absl::OkStatus();
  }
  const Plan& plan = *optimised;
  const std::vector<std::vector<int>> layers = LayersOfSteps(plan, &written);
  std::vector<bool> in_fp32(have_bf16.size(), true);
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    Kernel& kernel = *plan.steps[s].kernel;
    if (!kernel.precision().has_value()) continue;
    std::optional<Precision> agreed;
    for (const int layer : layers[s]) {
      if (have_bf16[layer]) agreed = Agreed(agreed, asked[layer].value_or(choice.model));
    }
    const Precision precision = agreed.value_or(choice.model);
    if (precision == Precision::kFp32) continue;
    constexpr int64_t kUsualRows = 64;
    kernel.SetPrecision(precision, static_cast<int>(s) < plan.user_steps ? 1 : kUsualRows);
    for (const int layer : layers[s]) {
      if (kernel.precision() == Precision::kBf16) in_fp32[layer] = false;
    }
  }
  for (const auto& [name, precision] : choice.layers) {
    for (const Node& node : graph.nodes) {
      if (node.name != name || precision != Precision::kBf16 || !in_fp32[node.file_index]) continue;
      notices.push_back(absl::StrCat("manifest: layer_precision: ", node.Label(),
                                     " is computed in fp32: its weights depend on the request, or "
                                     "a layer that it was joined with is not in bf16"));
    }
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine
