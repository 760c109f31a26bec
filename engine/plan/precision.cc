// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/precision.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/graph/graph.h"
#include "engine/plan/plan.h"
#include "engine/plan/plan_info.h"
#include "proto/model_manifest.pb.h"

namespace ulfd::engine {
namespace {

namespace pb = ulfd::model::v1;

constexpr absl::string_view kTypes =
    "inner_product_layer, inner_product_layer_ex, gru_layer, lstm_layer, rnn_layer";

Precision FromProto(pb::Precision precision) {
  switch (precision) {
    case pb::PRECISION_BF16:
      return Precision::kBf16;
    case pb::PRECISION_INT8:
      return Precision::kInt8;
    case pb::PRECISION_AUTO:
      return Precision::kAuto;
    default:
      return Precision::kFp32;
  }
}

// By position in the file: whether the layer has products with weights.
std::vector<bool> HaveProducts(const Graph& graph, const Plan& written) {
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
                 const std::vector<bool>& have_products,
                 std::vector<std::optional<Precision>>& asked) {
  constexpr absl::string_view kNames = "manifest: layer_precision names ";
  bool found = false;
  for (const Node& node : graph.nodes) {
    if (name.empty() || node.name != name) continue;
    found = true;
    if (asked[node.file_index].has_value()) {
      return InvalidArgument(kNames, "\"", name, "\" twice");
    }
    if (std::find(double_layers.begin(), double_layers.end(), name) != double_layers.end()) {
      return InvalidArgument(kNames, node.Label(),
                             ", which double_layers has computed in double; want one of them");
    }
    if (!have_products[node.file_index]) {
      return InvalidArgument(kNames, node.Label(),
                             ", a type without products with weights; these are: ", kTypes);
    }
    asked[node.file_index] = precision;
  }
  if (found) return absl::OkStatus();
  return InvalidArgument(kNames, "\"", name, "\", which is no layer of the graph");
}

// What is asked for, as far as this machine has it.
Precision Possible(Precision precision) { return Has(precision) ? precision : Precision::kFp32; }

void NoteMissing(const PrecisionChoice& choice, std::vector<std::string>& notices) {
  std::set<Precision> asked = {choice.model};
  for (const auto& [name, precision] : choice.layers) asked.insert(precision);
  for (const Precision precision : asked) {
    if (Has(precision)) continue;
    notices.push_back(absl::StrCat("manifest: precision: what is to be in ", Name(precision),
                                   " is computed in fp32: this machine has no ",
                                   InstructionsOf(precision), ", or ULFD_ISA leaves it out"));
  }
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
  for (const Precision precision :
       {Precision::kFp32, Precision::kAuto, Precision::kBf16, Precision::kInt8}) {
    if (absl::EqualsIgnoreCase(name, Name(precision))) return precision;
  }
  return InvalidArgument("precision \"", name, "\", want auto, bf16, fp32 or int8");
}

absl::Status ChoosePrecisions(const PrecisionChoice& choice,
                              absl::Span<const std::string> double_layers, const Graph& graph,
                              const Plan& written, const Plan* optimised,
                              std::vector<std::string>& notices) {
  if (!choice.asks()) return absl::OkStatus();
  const std::vector<bool> have_products = HaveProducts(graph, written);
  std::vector<std::optional<Precision>> asked(have_products.size());
  for (const auto& [name, precision] : choice.layers) {
    RETURN_IF_ERROR(Ask(name, precision, double_layers, graph, have_products, asked));
  }
  if (optimised == nullptr) return absl::OkStatus();
  NoteMissing(choice, notices);
  const Plan& plan = *optimised;
  const std::vector<std::vector<int>> layers = LayersOfSteps(plan, &written);
  std::vector<bool> in_fp32(have_products.size(), true);
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    Kernel& kernel = *plan.steps[s].kernel;
    if (!kernel.precision().has_value()) continue;
    std::optional<Precision> agreed;
    for (const int layer : layers[s]) {
      if (!have_products[layer]) continue;
      const Precision one = Possible(asked[layer].value_or(choice.model));
      agreed = std::min(agreed.value_or(one), one);
    }
    constexpr int64_t kUsualRows = 64;
    kernel.SetPrecision(agreed.value_or(Possible(choice.model)),
                        static_cast<int>(s) < plan.user_steps ? 1 : kUsualRows);
    for (const int layer : layers[s]) {
      if (kernel.precision() != Precision::kFp32) in_fp32[layer] = false;
    }
  }
  for (const auto& [name, precision] : choice.layers) {
    if (precision <= Precision::kAuto || !Has(precision)) continue;
    for (const Node& node : graph.nodes) {
      if (node.name != name || !in_fp32[node.file_index]) continue;
      notices.push_back(absl::StrCat(
          "manifest: layer_precision: ", node.Label(), " is computed in fp32, not in ",
          Name(precision), ": its weights depend on the request, a layer that it was joined with ",
          "is in fp32, or in int8 it has up to ", MatrixView::kMaxColumns,
          " columns, or a weight beside which most of a column would be rounded to 0"));
    }
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine
