// Which ids of tables in stores are asked for most, so that a version starts with their rows in
// memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_HOT_IDS_H_
#define ULFD_SERVER_MODELS_HOT_IDS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/embedding/table.h"
#include "engine/runtime/model.h"

namespace ulfd::server {

// Thread-safe.
class HotIds {
 public:
  // `directory` keeps them for the next start, a file per model and table; empty: nothing does.
  explicit HotIds(std::string directory) : directory_(std::move(directory)) {}

  // Writes those of the model's tables.  UNAVAILABLE, naming the file.
  absl::Status Keep(const std::string& name, const engine::Model& model) const;
  // Brings rows into the memory of the model's tables: those that `before` (null: nothing serves)
  // is asked for or, where it has no such table, those that were kept.  Takes `most` at most.  What
  // cannot be had is no reason to refuse the model: `notices` tell of it.
  void ReadAhead(const std::string& name, const engine::Model& model, const engine::Model* before,
                 std::chrono::milliseconds most, std::vector<std::string>& notices) const;

 private:
  std::string PathOf(const std::string& name, const engine::EmbeddingTable& table) const;
  // Those of the run before; none: there was none, or nothing was kept.
  absl::StatusOr<std::vector<int64_t>> Kept(const std::string& name,
                                            const engine::EmbeddingTable& table) const;

  const std::string directory_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_HOT_IDS_H_
