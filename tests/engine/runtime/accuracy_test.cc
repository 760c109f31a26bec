// The maximum error of the exported models beside the checkout, per plan: checked, and printed as
// the table of docs/models.md.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

namespace fs = std::filesystem;

struct Row {
  const char* model;
  const char* double_layers;  // A line of the manifest.
  double bound;
};
constexpr Row kRows[] = {
    {"din", "", 1e-5},
    {"tdm_dnn", "", 3e-2},
    {"tdm_dnn", "double_layers: ['fc_1_d', 'bn_1_d', 'prelu_1_d', 'fc_2_d', 'bn_2_d']\n", 1e-4},
};

// The largest error of any output in any case.
double MaxError(const Model& model, const fs::path& cases, bool reference) {
  Workspace workspace;
  RunResult result;
  double worst = 0;
  int count = 0;
  for (const auto& entry : fs::directory_iterator(cases)) {
    std::string path = entry.path().string();
    if (!absl::EndsWith(path, ".in.npz")) continue;
    const ulfd::testing::CaseInputs inputs(testing::ReadArrays(path));
    const auto expected = testing::ReadArrays(path.replace(path.size() - 7, 7, ".expected.npz"));
    const absl::Status status =
        model.Run(inputs.tensors(), {.reference = reference}, workspace, result);
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) continue;
    for (size_t o = 0; o < result.outputs.size(); ++o) {
      const auto& wanted = expected.at(model.info().outputs[o].name);
      worst = std::max(worst, ulfd::testing::Error(result.outputs[o], wanted));
    }
    ++count;
  }
  EXPECT_GE(count, 8) << cases;
  return worst;
}

TEST(Accuracy, MaximumErrorPerModelAndPlan) {
  UseOneThread();
  if (!fs::exists(::ulfd::testing::SharedDir() + "/models"))
    GTEST_SKIP() << "no exported models here";
  TempDir temp;
  std::printf("| model | optimised | exact | as written | promised |\n|---|---|---|---|---|\n");
  for (const Row& row : kRows) {
    const fs::path source = fs::path(::ulfd::testing::SharedDir()) / "models" / row.model;
    const fs::path directory = fs::path(temp.path()) / row.model / "1";
    double errors[3] = {};
    for (const bool exact : {false, true}) {
      fs::remove_all(directory);
      fs::create_directories(directory.parent_path());
      fs::copy(source / "1", directory, fs::copy_options::recursive);
      std::ofstream(directory / "model.textproto")
          << (exact ? "exact: true\n" : "") << row.double_layers;
      const auto model = Model::Load({.directory = directory.string()});
      ASSERT_TRUE(model.ok()) << model.status();
      EXPECT_EQ((*model)->info().not_optimised, "");
      errors[exact ? 1 : 0] = MaxError(**model, source / "cases", /*reference=*/false);
      if (!exact) errors[2] = MaxError(**model, source / "cases", /*reference=*/true);
    }
    for (double error : errors) EXPECT_LE(error, row.bound) << row.model << row.double_layers;
    std::printf("| %s%s | %.1e | %.1e | %.1e | %.0e |\n", row.model,
                *row.double_layers == '\0' ? "" : " with `double_layers`", errors[0], errors[1],
                errors[2], row.bound);
  }
}

}  // namespace
}  // namespace ulfd::engine
