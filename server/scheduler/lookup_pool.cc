// LookupPool: fetching, and giving up.
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/lookup_pool.h"

#include <pthread.h>

#include "absl/strings/str_cat.h"
#include "server/scheduler/refusal.h"

namespace ulfd::server {
namespace {

constexpr std::chrono::seconds kReportInterval(5);
// When a caller who was refused may try again.
constexpr std::chrono::milliseconds kRetry(50);

}  // namespace

LookupPool::LookupPool(int threads, int64_t max_waiting) : max_waiting_(max_waiting) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { FetchLoop(); });
  threads_.emplace_back([this] { ExpireLoop(); });
}

LookupPool::~LookupPool() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  work_.NotifyAll();
  earlier_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status LookupPool::Submit(Lookup* call) {
  bool earliest = false;
  {
    MutexLock lock(mu_);
    if (static_cast<int64_t>(waiting_.size()) >= max_waiting_) {
      return Refuse(ShedReason::kQueueFull,
                    absl::StrCat(waiting_.size(), " requests wait for rows, limit ", max_waiting_),
                    kRetry);
    }
    const auto place = waiting_.emplace(call->fetch_deadline(), call);
    earliest = place == waiting_.begin();
  }
  work_.NotifyOne();
  if (earliest) earlier_.NotifyOne();
  return absl::OkStatus();
}

void LookupPool::FetchLoop() {
  pthread_setname_np(pthread_self(), "ulfd-lookup");
  for (;;) {
    Lookup* call = nullptr;
    {
      MutexLock lock(mu_);
      while (waiting_.empty() && !stopping_) work_.Wait(mu_);
      if (stopping_) return;
      call = waiting_.begin()->second;
      waiting_.erase(waiting_.begin());
    }
    call->FetchRows();
    call->RowsEnded();
  }
}

void LookupPool::ExpireLoop() {
  pthread_setname_np(pthread_self(), "ulfd-expire");
  for (;;) {
    Lookup* call = nullptr;
    {
      MutexLock lock(mu_);
      while (!stopping_ &&
             (waiting_.empty() || waiting_.begin()->first > std::chrono::steady_clock::now())) {
        if (waiting_.empty()) {
          earlier_.Wait(mu_);
        } else {
          earlier_.WaitUntil(mu_, waiting_.begin()->first);
        }
      }
      if (waiting_.empty()) return;
      call = waiting_.begin()->second;
      waiting_.erase(waiting_.begin());
    }
    call->RowsEnded();
  }
}

int64_t LookupPool::waiting() const {
  MutexLock lock(mu_);
  return static_cast<int64_t>(waiting_.size());
}

bool LookupPool::MayReport(TimePoint now) {
  MutexLock lock(mu_);
  if (now < next_report_) return false;
  next_report_ = now + kReportInterval;
  return true;
}

}  // namespace ulfd::server
