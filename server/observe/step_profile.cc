// SPDX-License-Identifier: Apache-2.0
#include "server/observe/step_profile.h"

#include <algorithm>

namespace ulfd::server {

void StepProfile::Add(const engine::StepTimes& times, int64_t ads) {
  constexpr int64_t kRemembered = 10;
  MutexLock lock(mu_);
  // Requests of other shapes run another plan.
  if (times.optimised != means_.optimised || times.ns.size() != means_.us.size()) {
    means_ = {.optimised = times.optimised, .us = std::vector<double>(times.ns.size())};
  }
  const double share = 1.0 / static_cast<double>(std::min(++means_.calls, kRemembered));
  means_.ads += (static_cast<double>(ads) - means_.ads) * share;
  for (size_t s = 0; s < times.ns.size(); ++s) {
    means_.us[s] += (static_cast<double>(times.ns[s]) / 1e3 - means_.us[s]) * share;
  }
}

StepProfile::Means StepProfile::means() const {
  MutexLock lock(mu_);
  return means_;
}

}  // namespace ulfd::server
