// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/client_quota.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "server/scheduler/refusal.h"

namespace ulfd::server {

namespace {

// About when one of the client's calls has ended.
constexpr std::chrono::milliseconds kRetryAfter(10);

}  // namespace

absl::Status ClientQuota::Acquire(const std::string& client, int64_t rows) {
  int64_t under_way = 0;
  {
    MutexLock lock(mu_);
    int64_t& booked = rows_[client];
    if (booked == 0 || booked + rows <= max_rows_) {
      booked += rows;
      return absl::OkStatus();
    }
    under_way = booked;
  }
  return Refuse(ShedReason::kQuota,
                absl::StrCat("the client has ", under_way, " ads under way and this request has ",
                             rows, ", its limit is ", max_rows_),
                kRetryAfter);
}

void ClientQuota::Release(const std::string& client, int64_t rows) {
  MutexLock lock(mu_);
  const auto it = rows_.find(client);
  if (it != rows_.end() && (it->second -= rows) <= 0) rows_.erase(it);
}

int64_t ClientQuota::clients() const {
  MutexLock lock(mu_);
  return static_cast<int64_t>(rows_.size());
}

}  // namespace ulfd::server
