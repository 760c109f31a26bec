// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/model_delta.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/directory/delta_directory.h"
#include "engine/directory/load_reason.h"
#include "engine/embedding/table_file.h"
#include "engine/embedding/table_overlay.h"
#include "engine/runtime/shape_plans.h"
#include "engine/weights/digest.h"

namespace ulfd::engine {
namespace {

using std::chrono::system_clock;
using Overlays = std::vector<std::shared_ptr<TableOverlay>>;

// What a delta changes in one table, checked.
struct TableChange {
  size_t table = 0;
  std::shared_ptr<const TableDelta> delta;
};

// The first of `ids` that has no row.  Errors of the table's store.
absl::StatusOr<std::optional<int64_t>> FindMissing(const EmbeddingTable& table,
                                                   const TableOverlay* overlay,
                                                   absl::Span<const int64_t> ids) {
  constexpr std::chrono::seconds kPatience(10);
  std::vector<int64_t> stored;  // Ids of which the store is to tell.
  for (const int64_t id : ids) {
    const char* row = overlay == nullptr ? nullptr : overlay->Find(id);
    if (row == nullptr && table.tier() != nullptr) {
      stored.push_back(id);
      continue;
    }
    const TableRows& base = *table.base();
    if (row == nullptr) row = base.Row(base.SlotOf(id));
    if (TableRows::IdOf(row) != id) return id;
  }
  if (stored.empty()) return std::nullopt;
  ASSIGN_OR_RETURN(const RowSet rows,
                   table.tier()->Read(stored, std::chrono::steady_clock::now() + kPatience));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows.state(i) == RowState::kMissing) return rows.ids()[i];
  }
  return std::nullopt;
}

system_clock::time_point TimeOf(const google::protobuf::Timestamp& time) {
  return system_clock::time_point(std::chrono::duration_cast<system_clock::duration>(
      std::chrono::seconds(time.seconds()) + std::chrono::nanoseconds(time.nanos())));
}

// A file that memory cannot hold is not read for its hash first.
absl::Status CheckSize(const std::string& path) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  const LoadScope* const load = LoadScope::Current();
  if (load == nullptr || file.size() <= load->limits().max_memory_bytes) return absl::OkStatus();
  return ResourceExhausted(path, ": ", file.size(), " bytes, the load may hold ",
                           load->limits().max_memory_bytes, " at a time (load.max_memory_bytes)");
}

// A model with some deltas on top, unfinished.
class DeltaDraft {
 public:
  explicit DeltaDraft(const LoadedModel& base)
      : base_(base),
        overlays_(base.executable.tables.size()),
        epoch_(base.info.epoch),
        event_time_(base.info.event_time),
        content_hash_(base.info.content_hash) {}

  // All of the delta or, with an error, nothing of it.  `only`: reads the rows of these tables, and
  // nothing else, for the sake of a later delta.  Null: everything.
  absl::Status Apply(const DeltaSource& source, const std::set<std::string>* only = nullptr);
  // Those of the last delta that has any; empty: none has.
  const std::string& weights() const { return weights_; }
  absl::StatusOr<std::unique_ptr<LoadedModel>> Finish() const;

 private:
  absl::Status CheckOrder(const DeltaSource& source, system_clock::time_point event_time) const;
  absl::StatusOr<TableChange> Read(const std::string& directory,
                                   const ulfd::model::v1::DeltaTable& config);
  absl::Status CheckDrops(size_t table, const std::vector<int64_t>& drop) const;
  // As it is so far; null: none.
  const TableOverlay* OverlayOf(size_t table) const {
    return overlays_[table] != nullptr ? overlays_[table].get()
                                       : base_.executable.tables[table]->overlay();
  }
  void Add(const TableChange& change);

  const LoadedModel& base_;
  Overlays overlays_;  // Null: that of the base.
  int64_t epoch_;
  system_clock::time_point event_time_;
  std::string content_hash_;
  std::string weights_;
};

absl::Status DeltaDraft::CheckOrder(const DeltaSource& source,
                                    system_clock::time_point event_time) const {
  if (source.epoch > epoch_ && event_time >= event_time_) return absl::OkStatus();
  if (source.epoch > epoch_) {
    const auto text = [](system_clock::time_point time) {
      return absl::FormatTime(absl::FromChrono(time), absl::UTCTimeZone());
    };
    return FailedPrecondition("event_time is ", text(event_time), ", before that of epoch ", epoch_,
                              ", ", text(event_time_));
  }
  return FailedPrecondition(
      "epoch ", epoch_, " is applied already, ",
      source.epoch == epoch_ ? "and does not change" : "this one comes too late");
}

absl::Status DeltaDraft::CheckDrops(size_t table, const std::vector<int64_t>& drop) const {
  const EmbeddingTable& base = *base_.executable.tables[table];
  const TableOverlay* const overlay = OverlayOf(table);
  ASSIGN_OR_RETURN(const std::optional<int64_t> missing, FindMissing(base, overlay, drop));
  RETURN_IF_ERROR(base.Check());  // No fault of the delta's.
  if (missing.has_value()) {
    return InvalidArgument("id ", *missing, " has no row to drop");
  }
  if (base.missing_keys() == MissingKeys::kDefaultRow &&
      std::find(drop.begin(), drop.end(), base.default_id()) != drop.end()) {
    return InvalidArgument("id ", base.default_id(), " is the default id, whose row must stay");
  }
  return absl::OkStatus();
}

absl::StatusOr<TableChange> DeltaDraft::Read(const std::string& directory,
                                             const ulfd::model::v1::DeltaTable& config) {
  const auto& tables = base_.executable.tables;
  const auto found = std::find_if(tables.begin(), tables.end(), [&](const auto& table) {
    return table->name() == config.name();
  });
  if (found == tables.end()) return InvalidArgument("the model has no such table");
  TableChange change{.table = static_cast<size_t>(found - tables.begin())};
  std::shared_ptr<const TableRows> put;
  if (!config.put().empty()) {
    const std::string path = absl::StrCat(directory, "/", config.put());
    RETURN_IF_ERROR(VerifyTableFile(path, [](uint64_t, uint64_t) {}));
    ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
    ASSIGN_OR_RETURN(put, OpenTableFile(file));
    if (put->dim != (*found)->dim()) {
      return InvalidArgument(path, ": rows of ", put->dim, " values, want ", (*found)->dim());
    }
  }
  std::vector<int64_t> drop;
  if (!config.drop().empty()) {
    const std::string path = absl::StrCat(directory, "/", config.drop());
    ASSIGN_OR_RETURN(drop, ReadIds(path));
    RETURN_IF_ERROR(Annotate(CheckDrops(change.table, drop), path));
  }
  ASSIGN_OR_RETURN(change.delta, TableDelta::Make(put.get(), std::move(drop), *(*found)->base()));
  if (put != nullptr) RETURN_IF_ERROR(put->file->Check());
  return change;
}

void DeltaDraft::Add(const TableChange& change) {
  std::shared_ptr<TableOverlay>& overlay = overlays_[change.table];
  if (overlay == nullptr) {
    const TableOverlay* const before = OverlayOf(change.table);
    overlay = before == nullptr ? std::make_shared<TableOverlay>()
                                : std::make_shared<TableOverlay>(*before);
  }
  overlay->Add(change.delta);
  // Whether or not anything folds them, as there may be no room for a file.
  if (overlay->rows() > 2 * overlay->ids()) overlay->Compact();
}

absl::Status DeltaDraft::Apply(const DeltaSource& source, const std::set<std::string>* only) {
  const std::string& directory = source.directory;
  const std::string file = absl::StrCat(directory, "/", kDeltaFile);
  const FileSums sums = only == nullptr ? FileSums::kChecked : FileSums::kIgnored;
  ASSIGN_OR_RETURN(const auto manifest, ReadDeltaManifest(directory, source.epoch, sums));
  const system_clock::time_point event_time = TimeOf(manifest.event_time());
  RETURN_IF_ERROR(Annotate(CheckOrder(source, event_time), file));
  if (manifest.base_epoch() != epoch_) {
    return FailedPrecondition(file, ": follows epoch ", manifest.base_epoch(), ", and ", epoch_,
                              " is the last one");
  }
  ContentHasher hasher;
  hasher.Add(content_hash_);
  hasher.Add(manifest.SerializeAsString());
  std::vector<TableChange> changes;
  for (const ulfd::model::v1::DeltaTable& table : manifest.tables()) {
    if (only != nullptr && !only->contains(table.name())) continue;
    absl::StatusOr<TableChange> change = Read(directory, table);
    if (!change.ok()) {
      return WithLoadReason(Annotate(change.status(), file, ": table \"", table.name(), "\""),
                            LoadReason::kTable);
    }
    for (const std::string* name : {&table.put(), &table.drop()}) {
      if (!name->empty()) RETURN_IF_ERROR(hasher.AddFile(absl::StrCat(directory, "/", *name)));
    }
    changes.push_back(*std::move(change));
  }
  if (!manifest.weights().empty() && only == nullptr) {
    weights_ = absl::StrCat(directory, "/", manifest.weights());
    RETURN_IF_ERROR(CheckSize(weights_));
    RETURN_IF_ERROR(hasher.AddFile(weights_));
  }
  for (const TableChange& change : changes) Add(change);
  epoch_ = source.epoch;
  event_time_ = event_time;
  content_hash_ = hasher.Hex();
  return absl::OkStatus();
}

// Caches that hold nothing, and count on where those of `before` do.
void EmptyCaches(const Executable& before, Executable& model) {
  if (before.user_cache != nullptr && model.user_cache != nullptr) {
    model.user_cache = before.user_cache->Empty();
  }
  if (before.ad_cache != nullptr && model.ad_cache != nullptr &&
      BytesOfItem(*before.optimised_schedule) == BytesOfItem(*model.optimised_schedule)) {
    model.ad_cache.reset();  // Its memory before that of another one.
    model.ad_cache = before.ad_cache->Empty();
  }
}

// A copy with other tables, which shares everything but what no two models may.
std::unique_ptr<LoadedModel> Copy(const LoadedModel& base,
                                  std::vector<std::shared_ptr<const EmbeddingTable>> tables) {
  auto model = std::make_unique<LoadedModel>(base);
  model->executable.info = &model->info;
  model->executable.tables = std::move(tables);
  EmptyCaches(base.executable, model->executable);
  if (base.executable.shape_plans != nullptr) {
    model->executable.shape_plans = base.executable.shape_plans->For(model->executable);
  }
  return model;
}

absl::StatusOr<std::unique_ptr<LoadedModel>> DeltaDraft::Finish() const {
  std::vector<std::shared_ptr<const EmbeddingTable>> tables = base_.executable.tables;
  for (size_t t = 0; t < tables.size(); ++t) {
    if (overlays_[t] == nullptr) continue;
    ASSIGN_OR_RETURN(tables[t], tables[t]->With(tables[t]->base(), overlays_[t]));
  }
  std::unique_ptr<LoadedModel> model;
  if (!weights_.empty()) {
    const LoadOverrides overrides{.weights = weights_, .tables = tables};
    LoadOptions options = base_.options;
    // Whether keeping ads pays was measured at the load of the version.
    options.always_keep_ads |= base_.executable.ad_cache != nullptr;
    ASSIGN_OR_RETURN(model, LoadModel(options, &overrides));
    model->options = base_.options;
    EmptyCaches(base_.executable, model->executable);
    model->info.name = base_.info.name;
    model->info.version = base_.info.version;
    model->info.folds = base_.info.folds;
  } else {
    model = Copy(base_, std::move(tables));
    RETURN_IF_ERROR(AccountMemory(*model));
  }
  model->info.epoch = epoch_;
  model->info.event_time = event_time_;
  model->info.content_hash = content_hash_;
  return model;
}

}  // namespace

std::unique_ptr<LoadedModel> ApplyDeltas(const LoadedModel& base,
                                         absl::Span<const DeltaSource> deltas,
                                         std::vector<absl::Status>& statuses) {
  // Weights are loaded once, those of the last delta that has any.  Where they are bad, it is done
  // again without that delta.
  std::vector<absl::Status> bad(deltas.size());
  while (true) {
    statuses.clear();
    DeltaDraft draft(base);
    std::optional<size_t> applied, weights;
    for (size_t d = 0; d < deltas.size(); ++d) {
      const std::string before = draft.weights();
      statuses.push_back(bad[d].ok() ? draft.Apply(deltas[d]) : bad[d]);
      if (!statuses.back().ok() && !IsContentError(statuses.back())) break;
      if (!statuses.back().ok()) continue;
      applied = d;
      if (draft.weights() != before) weights = d;
    }
    if (!applied.has_value()) return nullptr;
    absl::StatusOr<std::unique_ptr<LoadedModel>> model = draft.Finish();
    if (model.ok()) return *std::move(model);
    const size_t blame = weights.value_or(*applied);
    bad[blame] = Annotate(model.status(), deltas[blame].directory);
  }
}

absl::Status CheckDelta(const LoadedModel& base, absl::Span<const DeltaSource> before,
                        const DeltaSource& delta) {
  ASSIGN_OR_RETURN(const auto manifest,
                   ReadDeltaManifest(delta.directory, delta.epoch, FileSums::kIgnored));
  std::set<std::string> dropped_from;
  for (const ulfd::model::v1::DeltaTable& table : manifest.tables()) {
    if (!table.drop().empty()) dropped_from.insert(table.name());
  }
  DeltaDraft draft(base);
  for (const DeltaSource& source : before) {
    draft.Apply(source, &dropped_from).IgnoreError();  // It is left out, and is no base of `delta`.
  }
  RETURN_IF_ERROR(draft.Apply(delta));
  return Annotate(draft.Finish().status(), delta.directory);
}

std::unique_ptr<LoadedModel> ReplaceFolded(const LoadedModel& base, const EmbeddingTable& folded,
                                           std::shared_ptr<const TableRows> rows) {
  const auto& tables = base.executable.tables;
  const auto table = std::find_if(tables.begin(), tables.end(), [&](const auto& other) {
    return other->name() == folded.name();
  });
  if (table == tables.end() || (*table)->base() != folded.base()) return nullptr;
  if ((*table)->overlay() == nullptr) return nullptr;
  auto rest = (*table)->overlay()->Beyond(*folded.overlay());
  if (!rest.ok()) return nullptr;
  auto with = (*table)->With(std::move(rows), *std::move(rest));
  if (!with.ok()) return nullptr;  // Cannot be: folding keeps every id.
  std::vector<std::shared_ptr<const EmbeddingTable>> replaced = tables;
  replaced[static_cast<size_t>(table - tables.begin())] = *std::move(with);
  std::unique_ptr<LoadedModel> model = Copy(base, std::move(replaced));
  ++model->info.folds;
  // Less than before: a limit that was kept still is.
  return AccountMemory(*model).ok() ? std::move(model) : nullptr;
}

}  // namespace ulfd::engine
