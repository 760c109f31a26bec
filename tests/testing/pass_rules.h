// Small graphs that one pass, alone, does or does not rewrite.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_PASS_RULES_H_
#define ULFD_TESTS_TESTING_PASS_RULES_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/graph/passes.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/model_directories.h"
#include "tests/testing/plan_runner.h"
#include "tests/testing/two_features.h"

namespace ulfd::testing {

// `layer_params { ... }` with a name like its top.
inline std::string Layer(const std::string& type, const std::vector<std::string>& bottoms,
                         const std::string& top, const std::string& params = "") {
  std::string text = absl::StrCat("layer_params { name: \"", top, "\" type: \"", type, "_layer\" ");
  for (const std::string& bottom : bottoms) absl::StrAppend(&text, "bottom: \"", bottom, "\" ");
  return absl::StrCat(text, "top: \"", top, "\" ", params, " }\n");
}

inline std::string Constant(const std::string& top, const std::vector<int>& shape,
                            const std::vector<std::string>& values) {
  return Layer("constant", {}, top,
               absl::StrCat("constant_param { blob_data { shape: [", absl::StrJoin(shape, ", "),
                            "] data: [", absl::StrJoin(values, ", "), "] } }"));
}

// Of an array of a weight file.
inline std::string Blob(const std::vector<int>& shape) {
  int n = 1;
  for (int d : shape) n *= d;
  std::vector<float> values;
  for (int i = 0; i < n; ++i) values.push_back(0.25f * static_cast<float>((i * 7) % 11 - 5) + 0.1f);
  return absl::StrCat("blob_datas { shape: [", absl::StrJoin(shape, ", "), "] data: [",
                      absl::StrJoin(values, ", "), "] }");
}

class PassRules : public ModelDirectories {
 protected:
  PassRules() {
    case_.name = "rules";
    case_.confs = TwoFeaturesConfs(/*dim=*/4);
    case_.tables = {{"t", "1,1,-2,0,3.5\n2,10,20,-0.0,40\n3,-1,-0.5,0.25,7\n"}};
    case_.inputs = {{"u.ids", {"int64", {2}, {1, 3}}}, {"a.ids", {"int64", {3}, {1, 2, 77}}}};
  }

  void Weights(const std::string& layer, const std::vector<std::vector<int>>& shapes) {
    absl::StrAppend(&case_.weights_text, "layer_weights_params { name: \"", layer, "\" ");
    for (const std::vector<int>& shape : shapes) absl::StrAppend(&case_.weights_text, Blob(shape));
    absl::StrAppend(&case_.weights_text, "}\n");
  }

  // Runs the graph as written and rewritten by `passes` alone; scores must agree, bit for bit where
  // that is asked for.  Returns how many rewrites there were.
  int Rewrites(const std::string& layers, const std::vector<std::string>& passes,
               double tolerance = 0, bool exact = false) {
    case_.graph = kTwoFeatures + layers;
    std::filesystem::remove_all(base_);
    engine::LoadOptions options{.directory = WriteModelDirectory(case_, base_)};
    options.passes.exact = exact;
    for (const engine::Pass& pass : engine::AllPasses()) {
      if (std::find(passes.begin(), passes.end(), pass.name) == passes.end()) {
        options.passes.skip.emplace_back(pass.name);
      }
    }
    auto loaded = engine::LoadModel(options), again = engine::LoadModel(options);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (!loaded.ok()) return -1;
    EXPECT_EQ((*loaded)->info.not_optimised, "");
    if ((*loaded)->executable.optimised == nullptr) return -1;
    std::vector<engine::Rewrite> rewrites = (*loaded)->info.rewrites;
    PlanRunner written(*std::move(again), false), rewritten(*std::move(loaded), true);
    steps_ = Types(rewritten.plan());
    Compare(written, rewritten, tolerance);
    return static_cast<int>(std::count_if(
        rewrites.begin(), rewrites.end(),
        [&](const engine::Rewrite& rewrite) { return rewrite.pass == passes.back(); }));
  }

  static std::vector<std::string> Types(const engine::Plan& plan) {
    std::vector<std::string> types;
    for (const engine::Node& node : plan.graph.nodes) {
      if (node.type != "embedding_layer") types.push_back(node.type);
    }
    return types;
  }
  int Count(const std::string& type) const {
    return static_cast<int>(std::count(steps_.begin(), steps_.end(), type + "_layer"));
  }

  void Compare(PlanRunner& written, PlanRunner& rewritten, double tolerance) {
    const CaseInputs inputs(case_.inputs);
    engine::RunResult before, after;
    for (const int64_t tile : {0, 2}) {
      const engine::RunOptions options{.tile_rows = tile};
      ASSERT_TRUE(written.Run(inputs.tensors(), options, before).ok());
      ASSERT_TRUE(rewritten.Run(inputs.tensors(), options, after).ok());
      ASSERT_EQ(after.outputs.size(), before.outputs.size());
      for (size_t o = 0; o < after.outputs.size(); ++o) {
        const engine::Tensor &a = before.outputs[o], &b = after.outputs[o];
        ASSERT_EQ(a.dims, b.dims);
        if (tolerance == 0) {
          EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes()), 0) << written.info().outputs[o].name;
          continue;
        }
        for (int64_t i = 0; i < a.elements(); ++i) {
          EXPECT_NEAR(a.f32()[i], b.f32()[i], tolerance * (1 + std::abs(a.f32()[i])));
        }
      }
    }
  }

  GraphCase case_;
  std::vector<std::string> steps_;  // Types of the rewritten nodes, without embeddings.
};

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_PASS_RULES_H_
