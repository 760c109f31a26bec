// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/resources.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/directory/load_reason.h"
#include "engine/embedding/config.h"
#include "engine/embedding/table_file.h"
#include "engine/embedding/table_overlay.h"
#include "engine/stores/open_tier.h"

namespace ulfd::engine {

namespace pb = ulfd::model::v1;

namespace {

TableOptions OptionsOf(const pb::TableConfig& config) {
  TableOptions options;
  switch (config.missing_keys()) {
    case pb::MISSING_KEY_POLICY_DEFAULT_ROW:
      options.missing_keys = MissingKeys::kDefaultRow;
      break;
    case pb::MISSING_KEY_POLICY_MEAN_ROW:
      options.missing_keys = MissingKeys::kMeanRow;
      break;
    case pb::MISSING_KEY_POLICY_ERROR:
      options.missing_keys = MissingKeys::kError;
      break;
    default:
      options.missing_keys = MissingKeys::kZero;
  }
  options.default_id = config.default_id();
  options.skip_bad_lines = config.bad_lines() == pb::BAD_LINE_POLICY_SKIP;
  return options;
}

}  // namespace

FileResources::FileResources(const ModelDirectory& directory, const RedisClusters* redis,
                             ContentHasher& hasher)
    : root_(directory.path),
      graph_directory_(std::filesystem::path(directory.graph_path).parent_path().string()),
      manifest_(directory.manifest),
      redis_(redis),
      hasher_(hasher) {}

absl::StatusOr<const blaze::EmbeddingConfig*> FileResources::EmbeddingConf(
    const std::string& path) {
  auto it = confs_.find(path);
  if (it == confs_.end()) {
    ASSIGN_OR_RETURN(const std::string full,
                     PathWithin(root_, graph_directory_, path, "embedding_conf_path"));
    ASSIGN_OR_RETURN(blaze::EmbeddingConfig conf,
                     WithLoadReason(LoadEmbeddingConfig(full), LoadReason::kParse));
    RETURN_IF_ERROR(hasher_.AddFile(full));
    it = confs_.emplace(path, std::make_unique<blaze::EmbeddingConfig>(std::move(conf))).first;
  }
  return it->second.get();
}

const pb::TableConfig* FileResources::ConfigOf(const std::string& name) const {
  for (const pb::TableConfig& config : manifest_.tables()) {
    if (config.name() == name) return &config;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<const EmbeddingTable>> FileResources::Open(const std::string& name) {
  for (const std::shared_ptr<const EmbeddingTable>& table : given_) {
    if (table->name() == name) return table;
  }
  const pb::TableConfig* const config = ConfigOf(name);
  const TableOptions options = config == nullptr ? TableOptions() : OptionsOf(*config);
  absl::StatusOr<std::unique_ptr<const EmbeddingTable>> table;
  if (config != nullptr && config->has_store()) {
    ASSIGN_OR_RETURN(const std::string directory, StoreDirectory(root_, graph_directory_, *config));
    ASSIGN_OR_RETURN(auto tier, Annotate(OpenRowTier(config->store(), directory, redis_),
                                         "table \"", name, "\""));
    ASSIGN_OR_RETURN(table, Annotate(EmbeddingTable::MakeTiered(name, std::move(tier), options),
                                     "table \"", name, "\""));
  } else {
    ASSIGN_OR_RETURN(const std::string full,
                     PathWithin(root_, graph_directory_, name, "table_name"));
    RETURN_IF_ERROR(CheckTableFile(full));
    ASSIGN_OR_RETURN(table, EmbeddingTable::Load(name, full, options));
  }
  // To read a table file for its hash is what mapping saves.
  hasher_.Add((*table)->digest());
  return *std::move(table);
}

absl::StatusOr<ModelResources::TableRef> FileResources::Table(const std::string& name) {
  const auto it = table_index_.find(name);
  if (it != table_index_.end()) return TableRef{tables_[it->second].get(), it->second};
  ASSIGN_OR_RETURN(std::shared_ptr<const EmbeddingTable> table,
                   WithLoadReason(Open(name), LoadReason::kTable));
  const int index = static_cast<int>(tables_.size());
  tables_.push_back(std::move(table));
  table_index_.emplace(name, index);
  return TableRef{tables_.back().get(), index};
}

TableInfo InfoOf(const EmbeddingTable& table) {
  TableInfo info{table.name(), table.rows(), table.dim(), table.bytes(), table.mapped_bytes()};
  info.stored = table.tier() != nullptr;
  if (const TableOverlay* const overlay = table.overlay(); overlay != nullptr) {
    info.overlay_rows = static_cast<int64_t>(overlay->rows());
    info.overlay_bytes = overlay->bytes();
  }
  return info;
}

std::vector<TableInfo> FileResources::TableInfos() const {
  std::vector<TableInfo> infos;
  for (const auto& table : tables_) infos.push_back(InfoOf(*table));
  return infos;
}

std::chrono::milliseconds FileResources::fetch_timeout() const {
  std::chrono::milliseconds timeout{0};
  for (const auto& table : tables_) {
    if (table->tier() != nullptr) timeout = std::max(timeout, table->tier()->fetch_timeout());
  }
  return timeout;
}

Notices FileResources::TableNotices() const {
  Notices notices;
  for (const auto& table : tables_) {
    if (table->skipped_lines() > 0) {
      notices.push_back(absl::StrCat("table \"", table->name(), "\": ", table->skipped_lines(),
                                     " bad or duplicate lines skipped"));
    }
  }
  return notices;
}

}  // namespace ulfd::engine
