// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/measure.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "base/mutex.h"

namespace ulfd::engine {
namespace {

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): of this machine.
Mutex found_mu;
std::map<std::string, bool>& Found() ABSL_EXCLUSIVE_LOCKS_REQUIRED(found_mu) {
  static auto& found = *new std::map<std::string, bool>;
  return found;
}
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

double Seconds(absl::FunctionRef<void()> run, int times) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

bool FoundOnce(const std::string& key, absl::FunctionRef<bool()> find) {
  {
    const MutexLock lock(found_mu);
    const auto known = Found().find(key);
    if (known != Found().end()) return known->second;
  }
  const bool answer = find();
  const MutexLock lock(found_mu);
  return Found().emplace(key, answer).first->second;
}

bool TakesLess(absl::FunctionRef<void()> run, absl::FunctionRef<void()> usual) {
  // The shortest of a few turns, none too short for the clock: others may have the CPU meanwhile.
  constexpr int kTurns = 5;
  constexpr double kTurnSeconds = 10e-6;
  const int times = 1 + static_cast<int>(kTurnSeconds / std::max(Seconds(usual, 1), 1e-7));
  double taken = 1e9, usually = 1e9;
  for (int i = 0; i < kTurns; ++i) {
    usually = std::min(usually, Seconds(usual, times));
    taken = std::min(taken, Seconds(run, times));
  }
  return taken < 0.97 * usually;
}

}  // namespace ulfd::engine
