// The files that layers ask for while a model loads: embedding configurations and tables, each read
// once.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_RESOURCES_H_
#define ULFD_ENGINE_RUNTIME_RESOURCES_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "engine/directory/model_directory.h"
#include "engine/layers/layer.h"
#include "engine/runtime/model.h"
#include "engine/weights/digest.h"
#include "proto/model_manifest.pb.h"

namespace ulfd::engine {

// Of one table.
TableInfo InfoOf(const EmbeddingTable& table);

class FileResources final : public ModelResources {
 public:
  // Confs and tables lie beside the graph.  Everything that is read is added to `hasher`.  `redis`:
  // see LoadOptions.  All must outlive this object.
  FileResources(const ModelDirectory& directory, const RedisClusters* redis, ContentHasher& hasher);

  // Takes these for the tables of their names rather than reading files.
  void UseTables(absl::Span<const std::shared_ptr<const EmbeddingTable>> tables) {
    given_ = tables;
  }

  absl::StatusOr<const blaze::EmbeddingConfig*> EmbeddingConf(const std::string& path) override;
  absl::StatusOr<TableRef> Table(const std::string& name) override;

  std::vector<TableInfo> TableInfos() const;
  // See ModelInfo::fetch_timeout.
  std::chrono::milliseconds fetch_timeout() const;
  // Lines skipped, tables that the manifest names and no layer reads.
  Notices TableNotices() const;
  // The tables, which the model keeps.
  std::vector<std::shared_ptr<const EmbeddingTable>> TakeTables() { return std::move(tables_); }

 private:
  // What the manifest says of the table; null: nothing.
  const ulfd::model::v1::TableConfig* ConfigOf(const std::string& name) const;
  absl::StatusOr<std::shared_ptr<const EmbeddingTable>> Open(const std::string& name);

  const std::string root_, graph_directory_;
  const ulfd::model::v1::ModelManifest& manifest_;
  const RedisClusters* const redis_;
  ContentHasher& hasher_;
  HashMap<std::string, std::unique_ptr<blaze::EmbeddingConfig>> confs_;
  HashMap<std::string, int> table_index_;
  absl::Span<const std::shared_ptr<const EmbeddingTable>> given_;
  std::vector<std::shared_ptr<const EmbeddingTable>> tables_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_RESOURCES_H_
