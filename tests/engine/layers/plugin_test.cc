// Layer types from shared libraries: the example of tests/plugin_example, and libraries that must
// be refused.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/plugin.h"

#include <sys/stat.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kGraph[] =
    "layer_params { type: 'input_layer' top: 'x' } layer_params { name: 'swish' type: "
    "'acme_swish_layer' bottom: 'x' top: 'y' plugin_param { attribute { name: 'beta' number: 2 } } "
    "}";

absl::StatusOr<std::unique_ptr<const Model>> LoadGraph(const TempDir& directory,
                                                       const LayerPlugins& plugins) {
  directory.Write("model.textproto", "inputs { name: 'x' level: INPUT_LEVEL_AD row_shape: 3 }");
  return Model::Load({.directory = directory.path(), .layer_types = plugins.types()});
}

TEST(LayerPlugins, TheExampleServes) {
  UseOneThread();
  LayerPlugins plugins;
  const absl::Status added = plugins.Add(ULFD_PLUGIN_EXAMPLE);
  ASSERT_TRUE(added.ok()) << added;
  const TempDir directory;
  directory.Write("graph_ulf.txt", kGraph);
  const auto model = LoadGraph(directory, plugins);
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<float> x = {-1, 0, 0.5f, 2, -3, 4};
  Workspace workspace;
  RunResult result;
  const NamedTensor input{"x", {DType::kFloat32, {2, 3}, x.data()}};
  const absl::Status status = (*model)->Run({&input, 1}, {}, workspace, result);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(result.outputs.size(), 1u);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(result.outputs[0].f32()[i], x[i] / (1 + std::exp(-2.0 * x[i])), 1e-6) << i;
  }
}

TEST(LayerPlugins, ErrorsOfItsLayersNameTheLayer) {
  LayerPlugins plugins;
  ASSERT_TRUE(plugins.Add(ULFD_PLUGIN_EXAMPLE).ok());
  const TempDir directory;
  std::string graph = kGraph;
  graph.replace(graph.find("beta"), 4, "gama");
  directory.Write("graph_ulf.txt", graph);
  EXPECT_THAT(std::string(LoadGraph(directory, plugins).status().message()),
              HasSubstr("layer 1 \"swish\" (acme_swish_layer): plugin_param attribute \"gama\": "
                        "want only beta, one number"));
}

TEST(LayerPlugins, WithoutThePluginTheTypeIsUnknown) {
  const TempDir directory;
  directory.Write("graph_ulf.txt", kGraph);
  EXPECT_THAT(std::string(LoadGraph(directory, {}).status().message()),
              HasSubstr("unknown layer type \"acme_swish_layer\""));
}

TEST(LayerPlugins, RefusesWhatItCannotUse) {
  LayerPlugins plugins;
  EXPECT_THAT(std::string(plugins.Add("/nowhere/at_all.so").message()),
              StartsWith("plug-in /nowhere/at_all.so: "));
  EXPECT_EQ(std::string(plugins.Add(ULFD_PLUGIN_OTHER_ABI).message()),
            absl::StrCat("plug-in ", ULFD_PLUGIN_OTHER_ABI, ": built for plug-in ABI 9999, want ",
                         kLayerPluginAbi));
  EXPECT_EQ(std::string(plugins.Add(ULFD_PLUGIN_WITHOUT_TABLE).message()),
            absl::StrCat("plug-in ", ULFD_PLUGIN_WITHOUT_TABLE, ": exports no ulfd_layer_plugin"));
  const TempDir directory;
  const std::string text = directory.Write("no_library.so", "not a library");
  EXPECT_THAT(std::string(plugins.Add(text).message()), StartsWith("plug-in " + text + ": "));
  const std::string pipe = directory.File("pipe.so");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(std::string(plugins.Add(pipe).message()),
            "plug-in " + pipe + ": " + pipe + ": not a regular file");
  EXPECT_TRUE(plugins.types().empty());
}

TEST(LayerPlugins, ATypeComesOnce) {
  LayerPlugins plugins;
  ASSERT_TRUE(plugins.Add(ULFD_PLUGIN_EXAMPLE).ok());
  EXPECT_EQ(std::string(plugins.Add(ULFD_PLUGIN_EXAMPLE).message()),
            absl::StrCat("plug-in ", ULFD_PLUGIN_EXAMPLE,
                         ": layer type \"acme_swish_layer\": another plug-in has it"));
  EXPECT_EQ(plugins.types().size(), 1u);
}

}  // namespace
}  // namespace ulfd::engine
