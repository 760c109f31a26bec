// Folds overlays of tables into new bases, aside and at low priority.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_TABLE_FOLDER_H_
#define ULFD_SERVER_MODELS_TABLE_FOLDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "engine/embedding/table.h"
#include "server/models/model_types.h"
#include "server/system/background_queue.h"

namespace ulfd::server {

struct FoldOptions {
  double share = 0.125;   // Rows of an overlay, of those of the base, from which on it is folded.
  std::string directory;  // For files without a name.  Empty: that of the version.
};

// A table that was folded, or was not.
struct TableFold {
  std::string name;  // Of the model.
  int64_t version = 0;
  std::shared_ptr<const engine::EmbeddingTable> table;
  absl::StatusOr<std::shared_ptr<const engine::TableRows>> rows;
};

// One table at a time.  The end of it ends the fold that runs, without `done`.  Thread-safe.
class TableFolder {
 public:
  // `done` is called on the folder's thread.
  TableFolder(FoldOptions options, std::function<void(TableFold)> done)
      : options_(std::move(options)), done_(std::move(done)) {}
  // A model that serves from now on, loaded from `directory`.  Its thread folds a table of it if
  // one is due.
  void Offer(const ModelHandle& model, const std::string& directory);
  // Folds a table of the model, if one is due, here and now.
  std::optional<TableFold> FoldOne(const ServedModel& model, const std::string& directory);

 private:
  using Key = std::pair<std::string, int64_t>;  // Name and version of a model.
  struct Offered {
    std::weak_ptr<const ServedModel> model;
    std::string directory;
  };
  // A fold that is to be done, without rows; its table is null if there is none.
  TableFold Due(const ServedModel& model) const;
  void Fold(const std::string& directory, TableFold& fold);
  // One of those that were offered, on the queue's thread.
  void FoldOffered();

  const FoldOptions options_;
  const std::function<void(TableFold)> done_;
  mutable Mutex mu_;
  std::map<Key, Offered> offered_ ABSL_GUARDED_BY(mu_);
  // Per model and table that could not be folded: how many rows its deltas had brought.
  std::map<std::pair<Key, std::string>, size_t> failed_ ABSL_GUARDED_BY(mu_);
  BackgroundQueue queue_{"ulfd-fold"};  // Last: it uses everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_TABLE_FOLDER_H_
