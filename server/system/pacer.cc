// SPDX-License-Identifier: Apache-2.0
#include "server/system/pacer.h"

#include <thread>

#include "server/system/threads.h"

namespace ulfd::server {
namespace {

using std::chrono::nanoseconds;

// Work between two pauses: short beside a call, long beside what it costs to sleep.
constexpr nanoseconds kStint = std::chrono::microseconds(500);

}  // namespace

Pacer::Pacer(double share) : pause_per_work_(1 / share - 1), rested_at_(CpuTimeOfThisThread()) {}

void Pacer::Pace() {
  if (pause_per_work_ <= 0) return;
  const nanoseconds worked = CpuTimeOfThisThread() - rested_at_;
  if (worked < kStint) return;
  std::this_thread::sleep_for(std::chrono::duration_cast<nanoseconds>(worked * pause_per_work_));
  rested_at_ = CpuTimeOfThisThread();
}

}  // namespace ulfd::server
