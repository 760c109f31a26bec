// `ulf layers`: every row of the registry is documented, and every example loads and runs.
// SPDX-License-Identifier: Apache-2.0
#include "tools/model/layer_docs.h"

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/layers/registry.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::tools {
namespace {

class LayerDocs : public ::testing::TestWithParam<const engine::LayerType*> {};

TEST_P(LayerDocs, RowIsDocumented) {
  const engine::LayerType& type = *GetParam();
  EXPECT_FALSE(type.doc.formula.empty());
  EXPECT_FALSE(type.doc.inputs.empty());
  EXPECT_FALSE(type.doc.source.empty());
  EXPECT_EQ(type.doc.weights.empty(), type.weights.max == 0);
  const std::string page = LayerPage(type);
  for (const char* heading :
       {"formula", "inputs (", "weights (", "outputs (", "parameters", "source", "example"}) {
    EXPECT_TRUE(absl::StrContains(page, absl::StrCat("\n", heading))) << heading;
  }
  EXPECT_TRUE(absl::StrContains(LayerList(), type.name));
}

TEST_P(LayerDocs, ExampleLoadsAndRuns) {
  engine::UseOneThread();
  const TempDir directory;
  const auto files = LayerExample(*GetParam());
  ASSERT_FALSE(files.empty());
  for (const ExampleFile& file : files) directory.Write(file.name, file.content);
  const auto model = engine::Model::Load({.directory = directory.path()});
  ASSERT_TRUE(model.ok()) << model.status();
  if (GetParam()->name == "roi_align_layer") return;  // Made-up regions lie outside of the image.
  engine::Workspace workspace;
  engine::RunResult result;
  const absl::Status status = (*model)->RunWarmup(3, {}, workspace, result);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_FALSE(result.outputs.empty());  // Empty: the shapes were not known, nothing ran.
}

INSTANTIATE_TEST_SUITE_P(Types, LayerDocs, ::testing::ValuesIn(engine::AllLayerTypes()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(LayerPage, SaysDefaultsFromTheSchema) {
  engine::Notices notices;
  const auto type = engine::FindLayerType("Yolo", notices);
  ASSERT_TRUE(type.ok()) << type.status();
  const std::string page = LayerPage(**type);
  EXPECT_TRUE(absl::StrContains(page, "also: Yolo\n")) << page;
  EXPECT_TRUE(absl::StrContains(page, "  yolo_param (field 199)\n")) << page;
  EXPECT_TRUE(absl::StrContains(page, "    boxes: int32 = 3\n")) << page;
  EXPECT_TRUE(absl::StrContains(page, "    yolo_version: string = \"V3\"\n")) << page;
}

}  // namespace
}  // namespace ulfd::tools
