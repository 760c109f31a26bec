// `ulf explain --json`: everything, for programs.
// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan_json.h"
#include "nlohmann/json.hpp"
#include "tools/explain/explanation.h"

namespace ulfd::tools {
namespace {

using Json = nlohmann::ordered_json;
using engine::PlanInfo;

template <typename T>
std::string NameOf(T value) {
  return std::string(engine::Name(value));
}

class Writer {
 public:
  explicit Writer(const Explanation& all) : all_(all) {}

  Json Everything() const {
    const engine::ModelInfo& info = *all_.info;
    Json profiles = Json::array(), cancellations = Json::array();
    for (const Profile& profile : all_.profiles) profiles.push_back(ToJson(profile));
    for (const engine::Cancellation& found : all_.cancellations) {
      cancellations.push_back(ToJson(found));
    }
    return {{"name", info.name},
            {"version", info.version},
            {"ads", all_.ads},
            {"memory_bytes", info.memory_bytes},
            {"row_separable", info.row_separable},
            {"proof_failure", info.proof_failure},
            {"not_optimised", info.not_optimised},
            {"layers", Layers()},
            {"rewrites", Rewrites()},
            {"plans",
             {{"written", ToJson(all_.written)},
              {"optimised", all_.optimised ? ToJson(*all_.optimised) : Json(nullptr)}}},
            {"profiles", std::move(profiles)},
            {"cancellations", std::move(cancellations)},
            {"suggestion", all_.suggestion},
            {"shapes", Shapes()},
            {"as_written", all_.shapes.as_written},
            {"warnings", all_.warnings},
            {"notices", info.notices}};
  }

 private:
  Json Shapes() const {
    Json shapes = Json::array();
    for (const engine::InputShape& input : all_.shapes.inputs) {
      shapes.push_back({{"name", input.name},
                        {"level", std::string(engine::Name(input.level))},
                        {"row_shape", input.row_shape}});
    }
    return shapes;
  }

  Json Layers() const {
    Json layers = Json::array();
    for (size_t i = 0; i < all_.layers.size(); ++i) {
      const engine::LayerInfo& layer = all_.info->layers[i];
      const LayerExplanation& about = all_.layers[i];
      Json tops = Json::array();
      for (size_t t = 0; t < layer.tops.size(); ++t) {
        tops.push_back({{"name", layer.tops[t]},
                        {"shape", layer.top_shapes[t].ToString()},
                        {"level", NameOf(layer.top_levels[t])}});
      }
      layers.push_back({{"index", layer.index},
                        {"name", layer.name},
                        {"type", layer.type},
                        {"bottoms", layer.bottoms},
                        {"tops", std::move(tops)},
                        {"level", NameOf(about.level)},
                        {"fate", std::string(Name(about.fate))},
                        {"cost", engine::CostJson(about.cost, all_.ads)},
                        {"rewrites", about.rewrites},
                        {"steps", about.steps}});
    }
    return layers;
  }

  Json Rewrites() const {
    Json rewrites = Json::array();
    for (const engine::Rewrite& rewrite : all_.info->rewrites) {
      rewrites.push_back({{"pass", rewrite.pass},
                          {"text", rewrite.text},
                          {"layers", rewrite.layers},
                          {"saved", engine::CostJson(rewrite.saved, all_.ads)}});
    }
    return rewrites;
  }

  Json ToJson(const PlanInfo& plan) const { return engine::PlanJson(plan, all_.ads); }

  static Json ToJson(const Profile& profile) {
    Json steps = Json::array();
    for (const Profile::Step& step : profile.steps) {
      steps.push_back({{"us", step.us},
                       {"gflops", step.gflops},
                       {"share_of_peak", step.share_of_peak},
                       {"share_of_request", step.share_of_request}});
    }
    return {{"plan", profile.optimised ? "optimised" : "written"},
            {"ads", profile.ads},
            {"runs", profile.runs},
            {"request_us", profile.request_us},
            {"steps_us", profile.steps_us},
            {"peak_gflops", profile.peak_gflops},
            {"steps", std::move(steps)}};
  }

  static Json ToJson(const engine::Cancellation& found) {
    return {{"layer", found.layer},
            {"label", found.label},
            {"ratio", found.ratio},
            {"error", found.error},
            {"double_layers", found.double_layers},
            {"obstacles", found.obstacles}};
  }

  const Explanation& all_;
};

}  // namespace

std::string ExplainJson(const Explanation& all) {
  // Names in model files need not be UTF-8; what is not is replaced rather than thrown about.
  return Writer(all).Everything().dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ulfd::tools
