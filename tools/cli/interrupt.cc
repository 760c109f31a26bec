// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/interrupt.h"

#include <csignal>

namespace ulfd::tools {
namespace {

// A signal handler has no object.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
volatile std::sig_atomic_t interrupted = 0;
void OnSignal(int) { interrupted = 1; }

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = &OnSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

bool Interrupted() { return interrupted != 0; }

absl::Status CheckInterrupted() {
  return Interrupted() ? absl::CancelledError("stopped") : absl::OkStatus();
}

}  // namespace ulfd::tools
