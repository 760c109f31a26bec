// Load reasons travel as a payload of absl::Status.
// SPDX-License-Identifier: Apache-2.0
#include "engine/directory/load_reason.h"

#include <iterator>

#include "absl/strings/cord.h"
#include "absl/types/optional.h"

namespace ulfd::engine {
namespace {

constexpr absl::string_view kPayload = "type.ulfd/load_reason";
constexpr absl::string_view kNames[] = {"manifest", "sums",   "parse",      "graph",   "weights",
                                        "table",    "warmup", "incomplete", "changed", "memory",
                                        "time",     "io",     "content"};

}  // namespace

absl::string_view LoadReasonName(LoadReason reason) { return kNames[static_cast<int>(reason)]; }

absl::Status WithLoadReason(absl::Status status, LoadReason reason) {
  if (!status.ok() && !status.GetPayload(kPayload).has_value()) {
    status.SetPayload(kPayload, absl::Cord(LoadReasonName(reason)));
  }
  return status;
}

LoadReason LoadReasonOf(const absl::Status& status) {
  if (const absl::optional<absl::Cord> payload = status.GetPayload(kPayload)) {
    for (size_t i = 0; i < std::size(kNames); ++i) {
      if (*payload == kNames[i]) return static_cast<LoadReason>(i);
    }
  }
  if (IsContentError(status)) return LoadReason::kContent;
  if (absl::IsResourceExhausted(status)) return LoadReason::kMemory;
  return LoadReason::kIo;
}

bool IsContentError(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

}  // namespace ulfd::engine
