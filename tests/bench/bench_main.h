// main() of a benchmark that has flags.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_BENCH_BENCH_MAIN_H_
#define ULFD_TESTS_BENCH_BENCH_MAIN_H_

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/flags/flag_set.h"

namespace ulfd::bench {

// Reads the flags, then runs.  The exit code: 0, 1 after an error of `run`, 2 for wrong flags; both
// are printed.
inline int RunMain(int argc, char** argv, FlagSet& flags,
                   const std::function<absl::Status()>& run) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  absl::Status status = flags.Parse(args, 0, 0).status();
  if (IsHelpPrinted(status)) return 0;
  const bool understood = status.ok();
  if (understood) status = run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", argv[0], std::string(status.message()).c_str());
  return understood ? 1 : 2;
}

}  // namespace ulfd::bench

#endif  // ULFD_TESTS_BENCH_BENCH_MAIN_H_
