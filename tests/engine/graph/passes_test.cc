// Every pass against the graph as written and the float64 reference: on random graphs, alone,
// together and left out; what it costs; and that it finds something to do at all.
// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/passes.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/model_directories.h"
#include "tests/testing/paths.h"
#include "tests/testing/plan_runner.h"

namespace ulfd::engine {
namespace {

using ulfd::testing::CaseInputs;
using ulfd::testing::GraphCase;
using ulfd::testing::PlanRunner;

constexpr double kTolerance = 1e-5;

std::set<std::string> PassNames() {
  std::set<std::string> names;
  for (const Pass& pass : AllPasses()) names.emplace(pass.name);
  return names;
}

// Passes without which a pass finds nothing.
std::set<std::string> Prerequisites(const std::string& name) {
  static const std::map<std::string, std::set<std::string>> kBefore = {
      {"affine_chains", {"constant_folding"}},
      {"attention", {"fully_connected", "column_blocks"}},
      {"batch_norm", {"fully_connected"}},
      {"column_blocks", {"fully_connected"}},
      {"fc_fc", {"fully_connected"}},
      {"item_split", {"fully_connected", "column_blocks"}},
      {"user_split", {"fully_connected", "column_blocks"}},
      {"dice", {"constant_folding"}},
      {"dot_product_attention", {"constant_folding"}},
      {"epilogue", {"fully_connected"}},
      {"parallel_fc", {"fully_connected", "column_blocks", "epilogue"}},
  };
  const auto it = kBefore.find(name);
  return it == kBefore.end() ? std::set<std::string>() : it->second;
}

// Passes that leave every bit of every score as it is.
std::set<std::string> BitwisePasses() {
  std::set<std::string> names;
  for (const Pass& pass : AllPasses()) {
    if (!pass.reassociates && pass.same_bits) names.emplace(pass.name);
  }
  return names;
}

// A set of passes under a name for messages.
struct Selection {
  std::string name;
  PassOptions options;
  // Whether every score must be the very same as that of the plan as written.
  bool bitwise = false;
  // Whether the plan may cost no more than the one as written.
  bool cheaper = false;
};

Selection Only(const std::string& name, const std::set<std::string>& passes) {
  // fully_connected alone gives up that inner_product_layer_ex multiplies the user's row once;
  // user_rows alone repeats what the passes behind it read unrepeated.
  const bool cheaper = passes.count("fully_connected") + passes.count("user_rows") == 0;
  Selection selection{name, {.item_columns = 1}, true, cheaper};
  for (const std::string& pass : PassNames()) {
    if (passes.count(pass) == 0) {
      selection.options.skip.push_back(pass);
    } else {
      selection.bitwise &= BitwisePasses().count(pass) > 0;
    }
  }
  return selection;
}

std::vector<Selection> Selections() {
  std::vector<Selection> selections = {{"all passes", {}, false, true},
                                       {"all passes, ads cut", {.item_columns = 1}, false, false},
                                       {"exact passes", {.exact = true}, false, true},
                                       Only("bitwise passes", BitwisePasses())};
  for (const std::string& name : PassNames()) {
    std::set<std::string> passes = Prerequisites(name);
    passes.insert(name);
    selections.push_back(Only(name + " alone", passes));
    selections.push_back({"all but " + name, {.skip = {name}}, false, false});
  }
  return selections;
}

Cost CostOfGraph(const Plan& plan) {
  Cost sum;
  for (const Node& node : plan.graph.nodes) {
    const Cost cost = CostOf(node, plan.specs);
    sum.flops += cost.flops;
    sum.bytes += cost.bytes;
  }
  return sum;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.dims == b.dims && a.dtype == b.dtype &&
         (a.bytes() == 0 || std::memcmp(a.data, b.data, a.bytes()) == 0);
}

// One graph and what it makes of several requests.
struct GraphCases {
  std::string directory;
  std::vector<const GraphCase*> requests;
};

class PassesOnRandomGraphs : public ulfd::testing::ModelDirectories {
 protected:
  // Groups the cases by graph: all but "_ads<N>" of their names.  `part`: only those with it in
  // their names, each with a manifest that describes its inputs.
  void ReadCases(const std::string& path, const std::string& part = "") {
    for (GraphCase& read : ulfd::testing::ReadGraphCases(path)) {
      if (!absl::StrContains(read.name, part)) continue;
      GraphCase& graph_case = cases_.emplace_back(std::move(read));
      if (!part.empty()) {
        graph_case.manifest += ulfd::testing::InputManifest(graph_case);
      }
      GraphCases& graph = graphs_[graph_case.name.substr(0, graph_case.name.rfind("_ads"))];
      if (graph.requests.empty()) {
        graph.directory = ulfd::testing::WriteModelDirectory(graph_case, base_);
      }
      graph.requests.push_back(&graph_case);
    }
  }

  // nullptr: the proof of levels fails, and there is nothing to optimise.
  std::unique_ptr<LoadedModel> Load(const GraphCases& graph, const PassOptions& passes) {
    auto loaded = LoadModel({.directory = graph.directory, .passes = passes});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (!loaded.ok()) return nullptr;
    for (const std::string& notice : (*loaded)->info.notices) {
      EXPECT_FALSE(absl::StartsWith(notice, "executed as written")) << notice;
    }
    EXPECT_EQ((*loaded)->info.not_optimised.empty(), (*loaded)->info.proof_failure.empty())
        << (*loaded)->info.not_optimised;
    if ((*loaded)->executable.optimised == nullptr) return nullptr;
    return *std::move(loaded);
  }

  void CheckGraph(const GraphCases& graph, const Selection& selection) {
    SCOPED_TRACE(selection.name);
    auto loaded = Load(graph, selection.options);
    if (loaded == nullptr) return;
    ++optimised_;
    for (const Rewrite& rewrite : loaded->info.rewrites) ++fired_[selection.name][rewrite.pass];
    if (selection.cheaper) CheckCost(*loaded);
    auto again = Load(graph, {});
    PlanRunner written(std::move(again), false), rewritten(std::move(loaded), true);
    for (const GraphCase* request : graph.requests) {
      SCOPED_TRACE(request->name);
      CheckRequest(*request, selection, written, rewritten);
    }
  }

  static void CheckCost(const LoadedModel& loaded) {
    const Cost before = CostOfGraph(*loaded.executable.plan);
    const Cost after = CostOfGraph(*loaded.executable.optimised);
    for (const double ads : {1.0, 16.0, 200.0, 2000.0}) {
      // A user's part that is computed aside is written and read once more: a few bytes.
      constexpr double kSlackNs = 4;
      EXPECT_LE(EstimatedNs(after, ads), EstimatedNs(before, ads) * (1 + 1e-9) + kSlackNs)
          << ads << " ads";
    }
  }

  static void CheckRequest(const GraphCase& request, const Selection& selection,
                           PlanRunner& written, PlanRunner& rewritten) {
    const CaseInputs inputs(request.inputs);
    RunResult before, after;
    for (const int64_t tile : {0, 4}) {
      const RunOptions options{.tile_rows = tile};
      ASSERT_TRUE(written.Run(inputs.tensors(), options, before).ok());
      const absl::Status status = rewritten.Run(inputs.tensors(), options, after);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(after.outputs.size(), before.outputs.size());
      for (size_t o = 0; o < after.outputs.size(); ++o) {
        const std::string& name = rewritten.info().outputs[o].name;
        EXPECT_LE(ulfd::testing::Error(after.outputs[o], request.expected.at(name)), kTolerance)
            << name;
        if (!selection.bitwise) continue;
        EXPECT_TRUE(SameBits(before.outputs[o], after.outputs[o])) << name;
      }
    }
  }

  std::deque<GraphCase> cases_;  // They stay where they are.
  std::map<std::string, GraphCases> graphs_;
  int optimised_ = 0;
  // How often each pass did something, per selection.
  std::map<std::string, std::map<std::string, int>> fired_;
};

TEST_F(PassesOnRandomGraphs, AloneTogetherAndLeftOut) {
  ReadCases(::ulfd::testing::TestData() + "/graphs/passes.json");
  ReadCases(::ulfd::testing::TestData() + "/graphs/images.json", "nhwc_3");
  for (const Selection& selection : Selections()) {
    for (const auto& [name, graph] : graphs_) {
      SCOPED_TRACE(name);
      CheckGraph(graph, selection);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(optimised_, 0);
  for (const std::string& name : PassNames()) {
    EXPECT_GT(fired_[name + " alone"][name], 0) << name << " alone never does anything";
    const std::string all = name == "item_split" ? "all passes, ads cut" : "all passes";
    EXPECT_GT(fired_[all][name], 0) << name << " does nothing beside the others";
    RecordProperty(name, fired_[all][name]);
  }
}

TEST_F(PassesOnRandomGraphs, FreshRandomGraphs) {
  const char* path = std::getenv("ULFD_GRAPH_CASES");
  if (path == nullptr || !std::filesystem::exists(path)) {
    GTEST_SKIP() << "ULFD_GRAPH_CASES names no file: tests/make_random_graphs.py makes one";
  }
  ReadCases(path);
  for (const auto& [name, graph] : graphs_) {
    SCOPED_TRACE(name);
    CheckGraph(graph, {"all passes", {}, false, true});
    CheckGraph(graph, {"exact passes", {.exact = true}, false, true});
    CheckGraph(graph, Only("bitwise passes", BitwisePasses()));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ulfd::engine
