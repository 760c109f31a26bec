// SPDX-License-Identifier: Apache-2.0
#include "server/models/table_folder.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/load_scope.h"
#include "engine/embedding/table_overlay.h"
#include "server/system/memory_release.h"

namespace ulfd::server {
namespace {

// Overlays of fewer rows cost less than folding them.
constexpr size_t kLeastRows = 10000;
constexpr int64_t kMemoryBytes = int64_t{64} << 20;

}  // namespace

TableFold TableFolder::Due(const ServedModel& model) const {
  TableFold fold{.name = model.name, .version = model.version, .table = nullptr, .rows = nullptr};
  MutexLock lock(mu_);
  for (const auto& table : model.model->tables()) {
    // There is no base to fold with where rows lie in a store.
    if (table->overlay() == nullptr || table->tier() != nullptr) continue;
    const double due =
        std::max<double>(kLeastRows, options_.share * static_cast<double>(table->rows()));
    if (static_cast<double>(table->overlay()->rows()) < due) continue;
    // What failed is tried again when as many more have come: as often as folds that succeed.
    const auto failed = failed_.find({{model.name, model.version}, table->name()});
    const size_t since = failed == failed_.end() ? 0 : failed->second;
    if (static_cast<double>(table->overlay()->rows_brought() - since) < due) continue;
    fold.table = table;
    break;
  }
  return fold;
}

void TableFolder::Fold(const std::string& directory, TableFold& fold) {
  const std::string& where = options_.directory.empty() ? directory : options_.directory;
  {
    const LoadScope scope({.owner = fold.name, .cancelled = &queue_.stopping()});
    fold.rows = WithinMemory([&] { return engine::FoldTable(*fold.table, where, kMemoryBytes); });
  }
  const std::pair key(Key(fold.name, fold.version), fold.table->name());
  MutexLock lock(mu_);
  if (fold.rows.ok()) {
    failed_.erase(key);
    return;
  }
  failed_[key] = fold.table->overlay()->rows_brought();
  fold.rows = Annotate(fold.rows.status(), "table \"", fold.table->name(), "\" is not folded");
}

std::optional<TableFold> TableFolder::FoldOne(const ServedModel& model,
                                              const std::string& directory) {
  TableFold fold = Due(model);
  if (fold.table == nullptr) return std::nullopt;
  Fold(directory, fold);
  return fold;
}

void TableFolder::Offer(const ModelHandle& model, const std::string& directory) {
  if (Due(*model).table == nullptr) return;
  {
    MutexLock lock(mu_);
    offered_[{model->name, model->version}] = {model, directory};
  }
  queue_.Add([this] { FoldOffered(); });
}

void TableFolder::FoldOffered() {
  Offered offered;
  {
    MutexLock lock(mu_);
    if (offered_.empty()) return;  // Two offers of one version.
    offered = std::move(offered_.begin()->second);
    offered_.erase(offered_.begin());
  }
  TableFold fold{.name = "", .table = nullptr, .rows = nullptr};
  // The model itself may go while its table is folded.
  if (const ModelHandle model = offered.model.lock(); model != nullptr) fold = Due(*model);
  if (fold.table == nullptr) return;
  Fold(offered.directory, fold);
  if (!queue_.stopping()) done_(std::move(fold));
  ReleaseFreeMemory();
}

}  // namespace ulfd::server
