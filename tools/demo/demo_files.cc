// Writes the demo model's version directory.
// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tools/cli/text_file.h"
#include "tools/demo/demo_model.h"

namespace ulfd::tools {
namespace {

void AppendRow(int64_t id, const DemoVector& row, std::string& text) {
  absl::StrAppend(&text, id);
  for (const double x : row) absl::StrAppendFormat(&text, ",%.6f", x);
  text += '\n';
}

}  // namespace

absl::Status WriteDemoModel(const DemoWorld& world, uint64_t seed, const std::string& directory) {
  const std::string base = directory + "/";
  std::string text;
  for (int64_t i = 0; i < world.items(); ++i)
    AppendRow(DemoWorld::ItemId(i), world.ItemRow(i), text);
  RETURN_IF_ERROR(WriteTextFile(base + "item_table", text));
  text.clear();
  for (int64_t i = 0; i < world.users(); ++i)
    AppendRow(DemoWorld::UserId(i), world.UserRow(i), text);
  RETURN_IF_ERROR(WriteTextFile(base + "user_table", text));
  text.clear();
  for (int c = 0; c < kDemoCategories; ++c) {
    AppendRow(DemoWorld::CategoryId(c), world.CategoryRow(c), text);
  }
  RETURN_IF_ERROR(WriteTextFile(base + "category_table", text));
  RETURN_IF_ERROR(WriteTextFile(base + "graph_ulf.txt", DemoGraphText()));
  RETURN_IF_ERROR(WriteTextFile(base + "model.textproto", DemoManifest()));
  RETURN_IF_ERROR(WriteTextFile(base + "user_embedding.conf", DemoUserEmbeddingConf()));
  RETURN_IF_ERROR(WriteTextFile(base + "ad_embedding.conf", DemoAdEmbeddingConf()));
  RETURN_IF_ERROR(WriteTextFile(base + "weights.pb", DemoWeights(world, seed).SerializeAsString()));
  return WriteTextFile(base + "_SUCCESS", "");  // Last: says that the rest is complete.
}

}  // namespace ulfd::tools
