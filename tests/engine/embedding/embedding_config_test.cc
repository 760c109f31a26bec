// Embedding configurations: what is refused, and how it is said.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/embedding/config.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

constexpr char kGroup[] = "feature_group_config { feature_group: 'f' table_name: 't' dim: 2 }\n";

class EmbeddingConfigTest : public ::testing::Test {
 protected:
  // The error's text after the directory, or "ok".
  std::string Error(absl::string_view content) {
    const absl::Status status = LoadEmbeddingConfig(dir_.Write("e.conf", content)).status();
    return status.ok() ? "ok" : std::string(status.message().substr(dir_.path().size() + 1));
  }
  std::string ItemError(absl::string_view item) {
    return Error(
        absl::StrCat(kGroup, "block_config { embedding_block_config_item { ", item, " } }"));
  }
  TempDir dir_;
};

TEST_F(EmbeddingConfigTest, ReadsWithDefaults) {
  const auto config = LoadEmbeddingConfig(
      dir_.Write("e.conf",
                 "feature_group_config { feature_group: 'f' table_name: 't' }\n"
                 "block_config { stride: 9 embedding_block_config_item { feature_group: 'f' } }"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->feature_group_config(0).dim(), 18);
  EXPECT_EQ(config->block_config(0).embedding_block_config_item(0).trunc_direction(),
            blaze::kReverse);
  EXPECT_EQ(Error(""), "ok");
}

TEST_F(EmbeddingConfigTest, ParseErrorsHaveLineAndColumn) {
  EXPECT_EQ(Error("feature_group_config {\n  feature_grupp: 'f'\n}"),
            "e.conf:2:16: Message type \"blaze.EmbeddingFeatureGroupConfig\" has no field named "
            "\"feature_grupp\"; did you mean \"feature_group\"?");
  EXPECT_EQ(Error("\n feature_group_config { feature_group: 'f' }"),
            "e.conf:2:2: required field feature_group_config[0].table_name of "
            "blaze.EmbeddingConfig is missing");
}

TEST_F(EmbeddingConfigTest, ChecksItems) {
  EXPECT_EQ(ItemError("feature_group: 'f' udf_type: 2 trunc_num: 3 trunc_direction: kInorder"),
            "ok");
  const std::string prefix = "e.conf: block_config[0] item 0 (feature \"f\"): ";
  EXPECT_EQ(ItemError("feature_group: 'f' udf_type: 7"),
            prefix + "udf_type 7, want 0 (sum), 1 (avg) or 2 (assign)");
  EXPECT_EQ(ItemError("feature_group: 'f' udf_type: -1"),
            prefix + "udf_type -1, want 0 (sum), 1 (avg) or 2 (assign)");
  EXPECT_EQ(ItemError("feature_group: 'f' trunc_num: -2"),
            prefix + "trunc_num -2, want at least 0");
  EXPECT_EQ(ItemError("feature_group: 'f' udf_type: 2 trunc_num: 2147483647"),
            prefix +
                "trunc_num 2147483647 of dim 2 makes 4294967294 columns, want at most "
                "16777216");
  EXPECT_EQ(ItemError("feature_group: 'g'"),
            "e.conf: block_config[0] item 0 (feature \"g\"): has no feature_group_config");
}

TEST_F(EmbeddingConfigTest, ChecksGroups) {
  EXPECT_EQ(Error(absl::StrCat(kGroup, kGroup)),
            "e.conf: feature_group_config of \"f\": given twice");
  for (const char* dim : {"0", "-18"}) {
    EXPECT_EQ(
        Error(absl::StrCat("feature_group_config { feature_group: 'f' table_name: 't' dim: ", dim,
                           " }")),
        absl::StrCat("e.conf: feature_group_config of \"f\": dim ", dim, ", want 1 to 16777216"));
  }
}

}  // namespace
}  // namespace ulfd::engine
