// Whole models in process: embedding lookups, the user's part, the ads' part; no RPC.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/bench_models.h"
#include "tests/bench/model_bench.h"
#include "tests/bench/scratch_model.h"
#include "tests/testing/paths.h"

namespace ulfd::bench {
namespace {

using Models = std::vector<std::unique_ptr<const engine::Model>>;
using Loaded = absl::StatusOr<std::unique_ptr<const engine::Model>>;

bool Register(const std::string& name, Loaded loaded, const MadeUpIds& ids, Models& models) {
  if (!loaded.ok()) {
    std::fprintf(stderr, "models_bench: %s: %s\n", name.c_str(),
                 loaded.status().ToString().c_str());
    return false;
  }
  models.push_back(*std::move(loaded));
  RegisterModel(name, *models.back(), ids);
  return true;
}

int Main(int argc, char** argv) {
  const TempDirectory scratch;
  Models models;
  ScratchModel mlp, din, heads;
  BuildMlp(mlp, {306, 200, 80, 2}, "prelu_layer");
  BuildDinWithLookups(din);
  BuildHeads(heads);
  const MadeUpIds own{.per_user = 100, .table_rows = 1000};
  if (!Register("mlp_306_200_80_2", mlp.Load(scratch.path() + "/mlp/1"), own, models)) return 1;
  if (!Register("din_100x36", din.Load(scratch.path() + "/din/1"), own, models)) return 1;
  if (!Register("heads_12", heads.Load(scratch.path() + "/heads/1"), own, models)) return 1;
  for (const char* name : {"din", "tdm_dnn"}) {
    const std::string directory = absl::StrCat(testing::SharedDir(), "/models/", name, "/1");
    if (!std::filesystem::is_directory(directory)) {
      std::fprintf(stderr, "models_bench: no %s, left out\n", directory.c_str());
      continue;
    }
    Loaded loaded = engine::Model::Load({.directory = directory});
    if (!Register(absl::StrCat("export_", name), std::move(loaded), {}, models)) return 1;
  }
  return RunAll(argc, argv);
}

}  // namespace
}  // namespace ulfd::bench

int main(int argc, char** argv) { return ulfd::bench::Main(argc, argv); }
