// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/config.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/hash_map.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/weights/proto_file.h"

namespace ulfd::engine {
namespace {

constexpr int64_t kMaxColumns = int64_t{1} << 24;

absl::Status ValidateItem(const blaze::EmbeddingBlockConfigItem& item, int64_t dim) {
  if (item.udf_type() < blaze::kSum || item.udf_type() > blaze::kAssign) {
    return InvalidArgument("udf_type ", item.udf_type(), ", want 0 (sum), 1 (avg) or 2 (assign)");
  }
  if (item.trunc_num() < 0) {
    return InvalidArgument("trunc_num ", item.trunc_num(), ", want at least 0");
  }
  if (item.udf_type() == blaze::kAssign && item.trunc_num() * dim > kMaxColumns) {
    return InvalidArgument("trunc_num ", item.trunc_num(), " of dim ", dim, " makes ",
                           item.trunc_num() * dim, " columns, want at most ", kMaxColumns);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateEmbeddingConfig(const blaze::EmbeddingConfig& config) {
  HashMap<std::string, int64_t> dims;
  for (const blaze::EmbeddingFeatureGroupConfig& group : config.feature_group_config()) {
    const std::string prefix =
        absl::StrCat("feature_group_config of \"", group.feature_group(), "\"");
    if (group.dim() < 1 || group.dim() > kMaxColumns) {
      return InvalidArgument(prefix, ": dim ", group.dim(), ", want 1 to ", kMaxColumns);
    }
    if (!dims.emplace(group.feature_group(), group.dim()).second) {
      return InvalidArgument(prefix, ": given twice");
    }
  }
  for (int b = 0; b < config.block_config_size(); ++b) {
    const blaze::EmbeddingBlockConfig& block = config.block_config(b);
    for (int i = 0; i < block.embedding_block_config_item_size(); ++i) {
      const blaze::EmbeddingBlockConfigItem& item = block.embedding_block_config_item(i);
      const std::string prefix = absl::StrCat("block_config[", b, "] item ", i, " (feature \"",
                                              item.feature_group(), "\")");
      const auto dim = dims.find(item.feature_group());
      if (dim == dims.end()) {
        return InvalidArgument(prefix, ": has no feature_group_config");
      }
      RETURN_IF_ERROR(Annotate(ValidateItem(item, dim->second), prefix));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<blaze::EmbeddingConfig> LoadEmbeddingConfig(const std::string& path) {
  blaze::EmbeddingConfig config;
  absl::StatusOr<ProtoFormat> format = ReadProtoFile(path, ProtoFormat::kText, config);
  if (!format.ok()) return format.status();
  RETURN_IF_ERROR(Annotate(ValidateEmbeddingConfig(config), path));
  return config;
}

}  // namespace ulfd::engine
