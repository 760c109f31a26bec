// Work that is given up once nobody waits for its result.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_TENSOR_PACE_H_
#define ULFD_ENGINE_TENSOR_PACE_H_

#include <algorithm>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace ulfd::engine {

// CANCELLED if `stop` is not null and says that nobody waits for the result any more.
inline absl::Status CheckStop(const std::function<bool()>* stop) {
  if (stop == nullptr || !(*stop)()) return absl::OkStatus();
  return absl::CancelledError("the call was cancelled or its deadline has passed");
}

// Looks every few milliseconds whether anybody waits.  Whoever computes says how much, and returns
// at once where Stops says so, whatever it has by then: who made the pace asks for its status and
// drops the result.  So that only what takes long needs to know.
class Pace {
 public:
  // Multiplications that take about a millisecond.
  static constexpr int64_t kMillisecond = int64_t{1} << 25;

  Pace() = default;  // Somebody always waits.
  // Borrows `stop`; null: somebody always waits.
  explicit Pace(const std::function<bool()>* stop) : stop_(stop) {}

  // To be called before or after `work` multiplications, or what takes as long.
  bool Stops(int64_t work) {
    since_look_ += work;
    if (since_look_ < kMillisecond) return !status_.ok();
    since_look_ = 0;
    if (status_.ok()) status_ = CheckStop(stop_);
    return !status_.ok();
  }
  const absl::Status& status() const { return status_; }

  // How many of `rows` rows, each of so much work, take about a millisecond: a multiple of `unit`.
  static int64_t RowsAtOnce(int64_t work, int64_t unit) {
    return std::max<int64_t>(1, kMillisecond / std::max<int64_t>(1, work) / unit) * unit;
  }

 private:
  const std::function<bool()>* stop_ = nullptr;
  int64_t since_look_ = 0;
  absl::Status status_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_TENSOR_PACE_H_
