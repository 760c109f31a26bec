// Why a call was refused, for its caller, the metrics and the log.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_REFUSAL_H_
#define ULFD_SERVER_SCHEDULER_REFUSAL_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ulfd::server {

// One value per cause; the label `reason` of ulfd_shed_total and the first word of the message.
enum class ShedReason : uint8_t {
  kQueueFull,  // More rows, requests or milliseconds wait than allowed.
  kDeadline,   // The deadline has passed or cannot be met.
  kCodel,      // The queue stands, and it would wait or has waited for too long.
  kDraining,   // Shutting down.
  kQuota,      // The model's or the client's share is used up.
  kMemory,     // No memory for the request.
};
constexpr int kShedReasons = 6;

// "queue_full", "deadline", ...
absl::string_view Name(ShedReason reason);

// RESOURCE_EXHAUSTED with the text "REASON: detail" and when to come back.
absl::Status Refuse(ShedReason reason, absl::string_view detail,
                    std::chrono::milliseconds retry_after);

// UNAVAILABLE: another server may answer.
absl::Status ShuttingDown();

// When the caller should try again: what Refuse was told; nullopt for any other status.
std::optional<std::chrono::milliseconds> RetryAfter(const absl::Status& status);
// The reason that Refuse was told; nullopt for any other status.
std::optional<ShedReason> ReasonOf(const absl::Status& status);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_REFUSAL_H_
