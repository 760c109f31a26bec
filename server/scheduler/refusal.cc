// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/refusal.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"

namespace ulfd::server {

namespace {

constexpr char kRetryUrl[] = "ulfd/retry-after-ms";
constexpr char kReasonUrl[] = "ulfd/shed-reason";

std::optional<int64_t> Number(const absl::Status& status, absl::string_view url) {
  const absl::optional<absl::Cord> payload = status.GetPayload(url);
  int64_t number = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &number)) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

absl::string_view Name(ShedReason reason) {
  static constexpr absl::string_view kNames[] = {"queue_full", "deadline", "codel",
                                                 "draining",   "quota",    "memory"};
  return kNames[static_cast<size_t>(reason)];
}

absl::Status Refuse(ShedReason reason, absl::string_view detail,
                    std::chrono::milliseconds retry_after) {
  absl::Status status = ResourceExhausted(Name(reason), ": ", detail);
  status.SetPayload(kRetryUrl, absl::Cord(absl::StrCat(retry_after.count())));
  status.SetPayload(kReasonUrl, absl::Cord(absl::StrCat(static_cast<int>(reason))));
  return status;
}

absl::Status ShuttingDown() { return Unavailable("draining: the server is shutting down"); }

std::optional<std::chrono::milliseconds> RetryAfter(const absl::Status& status) {
  const std::optional<int64_t> ms = Number(status, kRetryUrl);
  if (!ms.has_value()) return std::nullopt;
  return std::chrono::milliseconds(*ms);
}

std::optional<ShedReason> ReasonOf(const absl::Status& status) {
  const std::optional<int64_t> reason = Number(status, kReasonUrl);
  if (!reason.has_value() || *reason < 0 || *reason >= kShedReasons) return std::nullopt;
  return static_cast<ShedReason>(*reason);
}

}  // namespace ulfd::server
