// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/lookup_pool.h"

#include <pthread.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/scheduler/refusal.h"
#include "server/system/room_share.h"

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
  // Memory is asked for here, so that nothing is counted if there is none.
  Waiting queued = {{call->fetch_deadline(), call}}, of_client = queued;
  std::map<std::string, Client> newcomer;
  newcomer[call->client()];
  bool earliest = false;
  {
    MutexLock lock(mu_);
    const auto found = clients_.find(call->client());
    const size_t own = found == clients_.end() ? 0 : found->second.waiting.size();
    if (!HasRoom(static_cast<int64_t>(waiting_.size()), static_cast<int64_t>(own), 1,
                 max_waiting_)) {
      return Refuse(ShedReason::kQueueFull,
                    absl::StrCat(waiting_.size(), " requests wait for rows, ", own,
                                 " of this client, limit ", max_waiting_),
                    kRetry);
    }
    clients_.merge(newcomer);
    Client& client = clients_.find(call->client())->second;
    if (own == 0) client.turn = ++last_turn_;
    client.waiting.merge(of_client);
    waiting_.merge(queued);
    earliest = waiting_.begin()->second == call;
  }
  work_.NotifyOne();
  if (earliest) earlier_.NotifyOne();
  return absl::OkStatus();
}

Lookup* LookupPool::TakeFirst(const Waiting& queue) {
  const auto key = *queue.begin();
  const auto client = clients_.find(key.second->client());
  client->second.waiting.erase(key);
  if (client->second.waiting.empty()) clients_.erase(client);
  waiting_.erase(key);
  return key.second;
}

Lookup* LookupPool::TakeNext() {
  const auto next =
      std::min_element(clients_.begin(), clients_.end(),
                       [](const auto& a, const auto& b) { return a.second.turn < b.second.turn; });
  next->second.turn = ++last_turn_;
  return TakeFirst(next->second.waiting);
}

void LookupPool::FetchLoop() {
  pthread_setname_np(pthread_self(), "ulfd-lookup");
  for (;;) {
    Lookup* call = nullptr;
    {
      MutexLock lock(mu_);
      while (waiting_.empty() && !stopping_) work_.Wait(mu_);
      if (stopping_) return;
      call = TakeNext();
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
      call = TakeFirst(waiting_);
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
