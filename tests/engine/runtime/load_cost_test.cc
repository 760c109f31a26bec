// What loading a model costs: memory beside its weights and tables, and time as a function of the
// number of layers.
// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "gtest/gtest.h"
#include "tests/bench/scratch_model.h"
#include "tests/testing/paths.h"

namespace ulfd::engine {
namespace {

namespace fs = std::filesystem;
using bench::MadeUpRequest;
using bench::ScratchModel;
using bench::TempDirectory;
using ModelOr = absl::StatusOr<std::unique_ptr<const Model>>;

constexpr double kMegabyte = 1e6;

double ResidentMegabytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / kMegabyte;
}

double CpuMs() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// Loads the directory and checks what it takes by its own figure and by the process's.  `trained`:
// megabytes of weights and tables that it must have for the check to mean something.
void CheckMemory(const std::string& directory, double trained) {
  malloc_trim(0);
  const double before = ResidentMegabytes();
  const ModelOr model = Model::Load({.directory = directory});
  ASSERT_TRUE(model.ok()) << model.status();
  const double grown = ResidentMegabytes() - before;
  const ModelInfo& info = (*model)->info();
  const double own = static_cast<double>(info.weight_bytes + info.table_bytes) / kMegabyte;
  const double said = static_cast<double>(info.memory_bytes) / kMegabyte;
  std::printf("%s: weights and tables %.1f MB, memory_bytes %.1f MB, resident %+.1f MB\n",
              info.name.c_str(), own, said, grown);
  EXPECT_GE(own, trained);
  EXPECT_EQ(info.not_optimised, "");
  EXPECT_LE(said, 1.3 * own + 16);
  EXPECT_LE(grown, 1.3 * own + 16);
}

// As a wide ranking model has them: a user's part, normalised inputs, towers over the same columns.
void BuildLarge(ScratchModel& m) {
  m.Input("user", {2048}, /*user=*/true);
  m.Input("ad", {1024});
  m.Layer("fuse_layer", {"user", "ad"}, "x", "fuse_param { common_input_index: 0 }");
  m.Layer("bn_layer", {"x"}, "xn", "bn_param { eps: 1e-5 }", {{3072}, {3072}, {3072}, {3072}});
  m.Layer("inner_product_layer", {"xn"}, "h", "", {{3072, 1000}, {1000}});
  m.Layer("bn_layer", {"h"}, "hn", "bn_param { eps: 1e-5 }", {{1000}, {1000}, {1000}, {1000}});
  m.Layer("relu_layer", {"hn"}, "hr");
  for (const char* tower : {"a", "b"}) {
    const std::string t = absl::StrCat(tower, "1"), u = absl::StrCat(tower, "2");
    m.Layer("inner_product_layer", {"hr"}, t, "inner_product_param { transpose: true }",
            {{500, 1000}, {500}});
    m.Layer("relu_layer", {t}, u);
    m.Layer("inner_product_layer", {u}, tower, "", {{500, 1}, {1}});
  }
}

TEST(LoadCost, WeightsAreNotThereTwice) {
  UseOneThread();
  const TempDirectory directory;
  {
    ScratchModel scratch;
    BuildLarge(scratch);
    const ModelOr model = scratch.Load(directory.path());
    ASSERT_TRUE(model.ok()) << model.status();
    // Both plans read the same matrices.
    const MadeUpRequest request((*model)->info(), 20, 1, 1);
    Workspace workspace, other;
    RunResult optimised, written;
    ASSERT_TRUE((*model)->Run(request.inputs(), {}, workspace, optimised).ok());
    ASSERT_TRUE((*model)->Run(request.inputs(), {.reference = true}, other, written).ok());
    EXPECT_TRUE(optimised.stats.optimised);
    EXPECT_FALSE(written.stats.optimised);
    for (size_t o = 0; o < written.outputs.size(); ++o) {
      for (int64_t i = 0; i < written.outputs[o].elements(); ++i) {
        const double wanted = written.outputs[o].f32()[i];
        EXPECT_NEAR(optimised.outputs[o].f32()[i], wanted, 1e-4 * std::max(1.0, std::abs(wanted)));
      }
    }
  }
  CheckMemory(directory.path(), 12);
}

TEST(LoadCost, ExportedModels) {
  for (const std::string name : {"din", "tdm_dnn"}) {
    const fs::path directory = fs::path(testing::SharedDir()) / "models" / name / "1";
    if (!fs::exists(directory)) GTEST_SKIP() << directory << " is not there";
    CheckMemory(directory.string(), 0);
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const double begin = CpuMs();
      ASSERT_TRUE(Model::Load({.directory = directory.string()}).ok());
      best = std::min(best, CpuMs() - begin);
    }
    std::printf("%s: loaded in %.1f ms of one core\n", name.c_str(), best);
    EXPECT_LT(best, 300) << name;
  }
}

// inner_product, bn, relu, one after the other, with a user's product every now and then.
void BuildChain(int layers, ScratchModel& m) {
  m.Input("x", {16});
  m.Input("u", {16}, /*user=*/true);
  std::string last = "x";
  for (int i = 0; i < layers; ++i) {
    const std::string next = absl::StrCat("v", i);
    switch (i % 4) {
      case 0:
        m.Layer("inner_product_layer", {last}, next, "", {{16, 16}, {16}});
        break;
      case 1:
        m.Layer("bn_layer", {last}, next, "bn_param { eps: 1e-5 }", {{16}, {16}, {16}, {16}});
        break;
      case 2:
        m.Layer("relu_layer", {last}, next);
        break;
      default:
        m.Layer("add_layer", {last, "u"}, next);
    }
    last = next;
  }
}

// All of them over one input, and each an output.
void BuildFan(int layers, ScratchModel& m) {
  m.Input("x", {16});
  for (int i = 0; i < layers; ++i) m.Layer("relu_layer", {"x"}, absl::StrCat("v", i));
}

// Parts of a row change places, again and again.
void BuildBraid(int layers, ScratchModel& m) {
  m.Input("x", {16});
  std::string last = "x";
  for (int i = 0; i < layers; ++i) {
    const std::string next = absl::StrCat("v", i);
    m.Layer("slice_layer", {last}, next,
            "slice_param { concat_dim: 0 slices { offset: 7 shape: 9 } slices { offset: 0 shape: 7 "
            "} }");
    last = next;
  }
}

void CheckGrowth(const std::string& form, void (*build)(int layers, ScratchModel& m),
                 const int (&layers)[2]) {
  UseOneThread();
  const TempDirectory directories[2];
  for (int size : {0, 1}) {
    ScratchModel scratch;
    build(layers[size], scratch);
    ASSERT_TRUE(scratch.Load(directories[size].path()).ok());
  }
  // In turns, and the least of them: what else the machine does is not measured.
  double ms[2] = {1e9, 1e9};
  for (int i = 0; i < 10; ++i) {
    const double begin = CpuMs();
    const ModelOr model = Model::Load({.directory = directories[i % 2].path()});
    ms[i % 2] = std::min(ms[i % 2], CpuMs() - begin);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->info().not_optimised, "");
  }
  std::printf("a %s of %d layers loads in %.0f ms of one core, of %d in %.0f\n", form.c_str(),
              layers[0], ms[0], layers[1], ms[1]);
  // Quadratic would be 16 times.
  EXPECT_LT(ms[1], 9 * ms[0]);
}

TEST(LoadCost, GrowsWithTheNumberOfLayers) {
  CheckGrowth("chain", &BuildChain, {500, 2000});
  CheckGrowth("fan", &BuildFan, {2000, 8000});
  CheckGrowth("braid", &BuildBraid, {4500, 18000});
}

}  // namespace
}  // namespace ulfd::engine
