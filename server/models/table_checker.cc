// SPDX-License-Identifier: Apache-2.0
#include "server/models/table_checker.h"

#include <algorithm>
#include <chrono>

#include "base/errors.h"
#include "base/load_scope.h"

namespace ulfd::server {

void TableChecker::Offer(const ServedModel& model) {
  MutexLock lock(mu_);
  std::erase_if(known_, [](const Rows& rows) { return rows.expired(); });
  for (const auto& table : model.model->tables()) {
    const std::shared_ptr<const engine::TableRows>& rows = table->base();
    if (rows->file == nullptr || rows->file->size() <= checked_bytes_) continue;
    const auto same = [&](const Rows& other) { return other.lock() == rows; };
    if (std::any_of(known_.begin(), known_.end(), same)) continue;
    known_.push_back(rows);
    queue_.Add([this, offered = Offered{model.name, model.version, table->name(), rows}] {
      Check(offered);
    });
  }
}

void TableChecker::Check(const Offered& offered) {
  constexpr size_t kPiece = 4 << 20;
  constexpr std::chrono::nanoseconds kPause =
      std::chrono::nanoseconds(std::chrono::seconds(1)) * kPiece / kBytesPerSecond;
  const std::shared_ptr<const engine::TableRows> rows = offered.rows.lock();
  if (rows == nullptr) return;
  size_t read = 0;
  const absl::Status status = WithinMemory([&] {
    return engine::CheckMappedTable(*rows, [&](size_t bytes) -> absl::Status {
      read += bytes;
      if (read < kPiece) return absl::OkStatus();
      read = 0;
      // Nobody else has the file open: its model was withdrawn.
      if (rows.use_count() == 1 || !queue_.SleepFor(kPause)) return absl::CancelledError();
      return absl::OkStatus();
    });
  });
  if (status.ok() || absl::IsCancelled(status) || queue_.stopping()) return;
  report_(offered.model, offered.version, Annotate(status, "table \"", offered.table, "\""));
}

}  // namespace ulfd::server
