// SPDX-License-Identifier: Apache-2.0
#include "server/models/table_checker.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/load_scope.h"
#include "server/system/threads.h"

namespace ulfd::server {

TableChecker::~TableChecker() {
  std::thread thread;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    wake_.NotifyAll();
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
}

void TableChecker::Offer(const ServedModel& model) {
  if (model.model == nullptr) return;
  MutexLock lock(mu_);
  std::erase_if(known_, [](const Rows& rows) { return rows.expired(); });
  for (const auto& table : model.model->tables()) {
    const std::shared_ptr<const engine::TableRows>& rows = table->base();
    if (rows->file == nullptr || rows->file->size() <= checked_bytes_) continue;
    const auto same = [&](const Rows& other) { return other.lock() == rows; };
    if (std::any_of(known_.begin(), known_.end(), same)) continue;
    known_.push_back(rows);
    offered_.push_back({model.name, model.version, table->name(), rows});
  }
  if (offered_.empty() || stopping_) return;
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error&) {
      // The system refuses a thread: the next offer tries again.
    }
  }
  wake_.NotifyAll();
}

bool TableChecker::Pause(size_t bytes) {
  const std::chrono::nanoseconds pause(std::chrono::nanoseconds(std::chrono::seconds(1)).count() *
                                       static_cast<int64_t>(bytes) / kBytesPerSecond);
  const auto end = std::chrono::steady_clock::now() + pause;
  MutexLock lock(mu_);
  while (!stopping_ && std::chrono::steady_clock::now() < end) wake_.WaitUntil(mu_, end);
  return !stopping_;
}

void TableChecker::Check(const Offered& offered) {
  constexpr size_t kPiece = 4 << 20;
  const std::shared_ptr<const engine::TableRows> rows = offered.rows.lock();
  if (rows == nullptr) return;
  size_t read = 0;
  const absl::Status status = WithinMemory([&] {
    return engine::CheckMappedTable(*rows, [&](size_t bytes) -> absl::Status {
      read += bytes;
      if (read < kPiece) return absl::OkStatus();
      // Nobody else has the file open: its model was withdrawn.
      if (rows.use_count() == 1 || !Pause(std::exchange(read, 0))) return absl::CancelledError();
      return absl::OkStatus();
    });
  });
  if (status.ok() || absl::IsCancelled(status)) return;
  report_(offered.model, offered.version, Annotate(status, "table \"", offered.table, "\""));
}

void TableChecker::Run() {
  MakeBackgroundThread("ulfd-check");
  while (true) {
    Offered next;
    {
      MutexLock lock(mu_);
      while (!stopping_ && offered_.empty()) wake_.Wait(mu_);
      if (stopping_) return;
      next = std::move(offered_.front());
      offered_.pop_front();
    }
    Check(next);
  }
}

}  // namespace ulfd::server
