// A program run aside: in a session of its own, at the lowest priority, within bounds.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SYSTEM_CHILD_PROCESS_H_
#define ULFD_SERVER_SYSTEM_CHILD_PROCESS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ulfd::server {

struct ChildResult {
  int exit_code = 0;
  int signal = 0;      // That ended it; 0: none.
  std::string errors;  // The first 16 KiB of what it wrote to stderr.
};

struct ChildBounds {
  int64_t max_memory_bytes = 0;  // Of its address space; 0: no bound.
  // Asked about twenty times a second; true kills the program and whatever it started.
  std::function<bool()> stop;
};

// Runs the program argv[0] (a path) with nothing on stdin, its stdout dropped, the environment of
// this process and no other open files, and waits for it.  Does not copy this process, however
// large it is.  UNAVAILABLE: it cannot be started; CANCELLED: `stop` said so.  Any thread that may
// wait.
absl::StatusOr<ChildResult> RunChild(std::vector<std::string> argv, const ChildBounds& bounds);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SYSTEM_CHILD_PROCESS_H_
