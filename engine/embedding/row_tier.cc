// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/row_tier.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "base/errors.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/embedding/row_format.h"

namespace ulfd::engine {

using Clock = std::chrono::steady_clock;

namespace {

// Whoever writes the store is trusted no more than a table file is: one value that is not finite
// would spoil every score that it meets.
void RefuseBadRows(RowRead& read) {
  const StoredTableInfo& table = read.store->table();
  for (const size_t i : read.wanted) {
    if (read.rows->state(i) != RowState::kPresent) continue;
    if (IsFinite(table.format, read.rows->row(i), table.dim)) continue;
    read.rows->set_state(i, RowState::kLate);
    read.status.Update(DataLoss("id ", read.rows->ids()[i], ": a value of its row is not finite"));
  }
}

// As RowStore::Read.
void ReadRows(absl::Span<RowRead* const> reads, TimePoint deadline) {
  reads.front()->store->Read(reads, deadline);
  for (RowRead* const read : reads) RefuseBadRows(*read);
}

}  // namespace

RowTier::RowTier(std::unique_ptr<const RowStore> store, const RowTierOptions& options)
    : options_(options),
      store_(std::move(store)),
      cache_(options.cache, store_->table().row_bytes()) {}

void RowTier::Find(RowSet& rows) {
  const int64_t late = rows.CountLate();
  const int64_t found = cache_.Find(rows, Clock::now());
  hits_.fetch_add(found, std::memory_order_relaxed);
  misses_.fetch_add(late - found, std::memory_order_relaxed);
}

bool RowTier::TakeClaim(RowSet& rows, std::vector<size_t>& wanted) {
  bool others = false;
  wanted.reserve(rows.size());
  MutexLock lock(mu_);
  // What others have brought since this request looked: it is in the cache before its claim ends.
  cache_.Find(rows, Clock::now());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows.state(i) != RowState::kLate) continue;
    if (under_way_.insert(rows.ids()[i]).second) {
      wanted.push_back(i);
    } else {
      others = true;
    }
  }
  return others;
}

void RowTier::Settle(const RowRead& read) {
  if (read.wanted.empty()) return;
  RowSet& rows = *read.rows;
  const TimePoint now = Clock::now();
  // What there is no memory for is not kept; the claim ends all the same.
  WithinMemory([&] {
    for (const size_t i : read.wanted) {
      if (rows.state(i) == RowState::kLate) continue;
      const char* const row = rows.state(i) == RowState::kPresent ? rows.row(i) : nullptr;
      cache_.Insert(rows.ids()[i], row, now);
    }
  }).IgnoreError();
  {
    MutexLock lock(mu_);
    for (const size_t i : read.wanted) under_way_.erase(rows.ids()[i]);
  }
  settled_.NotifyAll();
}

void RowTier::AwaitOthers(RowSet& rows, TimePoint deadline) {
  const auto any_under_way = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows.state(i) == RowState::kLate && under_way_.contains(rows.ids()[i])) return true;
    }
    return false;
  };
  {
    MutexLock lock(mu_);
    while (any_under_way() && settled_.WaitUntil(mu_, deadline)) {
    }
  }
  cache_.Find(rows, Clock::now());
}

absl::Status RowTier::FetchRound(absl::Span<const Fetch> fetches, TimePoint deadline,
                                 bool* others) {
  std::vector<RowRead> reads(fetches.size());
  // Whatever happens: nobody may wait for a claim that never ends.
  const absl::Cleanup settle = [&] {
    for (size_t f = 0; f < fetches.size(); ++f) fetches[f].tier->Settle(reads[f]);
  };
  for (size_t f = 0; f < fetches.size(); ++f) {
    reads[f].store = fetches[f].tier->store_.get();
    reads[f].rows = fetches[f].rows;
    *others |= fetches[f].tier->TakeClaim(*fetches[f].rows, reads[f].wanted);
  }
  std::vector<RowRead*> left;
  for (RowRead& read : reads) {
    if (!read.wanted.empty()) left.push_back(&read);
  }
  while (!left.empty()) {
    const void* const backend = left.front()->store->backend();
    const auto end = std::stable_partition(left.begin(), left.end(), [&](const RowRead* read) {
      return read->store->backend() == backend;
    });
    ReadRows(absl::MakeSpan(left).first(end - left.begin()), deadline);
    left.erase(left.begin(), end);
  }
  absl::Status status;
  for (size_t f = 0; f < fetches.size(); ++f) {
    if (reads[f].status.ok()) continue;
    fetches[f].tier->failures_.fetch_add(1, std::memory_order_relaxed);
    status.Update(Annotate(reads[f].status, "table \"", *fetches[f].name, "\""));
  }
  return status;
}

absl::Status RowTier::FetchAll(absl::Span<const Fetch> fetches, TimePoint deadline) {
  const TimePoint begin = Clock::now();
  // A second round, for rows that others tried to fetch in vain or the cache did not keep.
  constexpr int kRounds = 2;
  absl::Status status;
  for (int round = 0; round < kRounds; ++round) {
    bool others = false;
    status.Update(FetchRound(fetches, deadline, &others));
    if (!others) break;
    for (const Fetch& fetch : fetches) fetch.tier->AwaitOthers(*fetch.rows, deadline);
  }
  const std::chrono::nanoseconds took = Clock::now() - begin;
  for (const Fetch& fetch : fetches) fetch.tier->CountFetch(took);
  return status;
}

void RowTier::CountFetch(std::chrono::nanoseconds took) {
  fetch_ns_.fetch_add(took.count(), std::memory_order_relaxed);
  const auto& bounds = RowTierStats::kFetchBounds;
  const double seconds = std::chrono::duration<double>(took).count();
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), seconds) - bounds.begin();
  fetch_counts_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
}

absl::StatusOr<RowSet> RowTier::Read(absl::Span<const int64_t> ids, TimePoint deadline) const {
  RowSet rows;
  rows.Reset(table().row_bytes());
  rows.AddIds(ids);
  rows.Reserve();
  RowRead read{.store = store_.get(), .rows = &rows};
  for (size_t i = 0; i < rows.size(); ++i) read.wanted.push_back(i);
  RowRead* const reads[] = {&read};
  ReadRows(reads, deadline);
  if (rows.CountLate() == 0) return rows;
  if (!read.status.ok()) return read.status;
  return Unavailable("the rows of ", rows.CountLate(), " ids did not come in time");
}

absl::Status RowTier::ReadAhead(absl::Span<const int64_t> ids, TimePoint deadline) {
  constexpr size_t kPiece = 4096;
  ids = ids.subspan(0, static_cast<size_t>(cache_.capacity()));
  while (!ids.empty() && Clock::now() < deadline) {
    RETURN_IF_ERROR(LoadScope::Check());
    std::vector<int64_t> piece(ids.begin(), ids.begin() + std::min(kPiece, ids.size()));
    ids.remove_prefix(piece.size());
    // Stores on disk are in this order.
    std::sort(piece.begin(), piece.end(),
              [](int64_t a, int64_t b) { return HashKey(a) < HashKey(b); });
    const absl::StatusOr<RowSet> rows = Read(piece, deadline);
    if (absl::IsUnavailable(rows.status())) break;  // Some did not come in time.
    if (!rows.ok()) return rows.status();
    const TimePoint now = Clock::now();
    for (size_t i = 0; i < rows->size(); ++i) {
      if (rows->state(i) != RowState::kPresent) continue;
      // Or a restart soon after this one would forget them.
      cache_.Insert(rows->ids()[i], static_cast<const char*>(rows->Find(rows->ids()[i])), now,
                    /*hot=*/true);
    }
  }
  return absl::OkStatus();
}

RowTierStats RowTier::stats() const {
  RowTierStats stats;
  stats.hits = hits_.load(std::memory_order_relaxed);
  stats.misses = misses_.load(std::memory_order_relaxed);
  stats.failures = failures_.load(std::memory_order_relaxed);
  stats.hedges = store_->hedges();
  stats.cached_bytes = cache_.bytes();
  stats.fetch_seconds = static_cast<double>(fetch_ns_.load(std::memory_order_relaxed)) / 1e9;
  for (size_t b = 0; b < fetch_counts_.size(); ++b) {
    stats.fetch_counts[b] = fetch_counts_[b].load(std::memory_order_relaxed);
  }
  return stats;
}

}  // namespace ulfd::engine
