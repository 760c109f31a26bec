// What `ulf load` is asked to do, checked.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_LOAD_OPTIONS_H_
#define ULFD_TOOLS_LOAD_LOAD_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/flags/flag_set.h"
#include "tools/cli/connection_flags.h"
#include "tools/load/arrivals.h"
#include "tools/load/model_inputs.h"
#include "tools/load/random_requests.h"

namespace ulfd::tools {

enum class LoadApi : uint8_t { kNative, kKserve };
enum class ArrivalKind : uint8_t { kPoisson, kConstant, kBursts, kRecorded, kClosedLoop };

// The defaults are those of `ulf load --help`.
struct LoadOptions {
  std::vector<std::string> targets;  // "HOST:PORT"
  LoadApi api = LoadApi::kNative;
  std::string model, label;
  int64_t version = 0;  // 0: the server chooses.

  ArrivalKind arrival = ArrivalKind::kPoisson;
  double rate = 100;
  Bursts bursts;
  double speed = 1;
  int64_t closed_loop = 0;  // Calls at a time; 0: open loop.
  absl::Duration duration = absl::Seconds(10), warmup = absl::Seconds(1);
  bool duration_given = false, timeout_given = false;
  int64_t calls = 0;  // 0: no limit
  absl::Duration timeout = absl::Seconds(1);

  int32_t channels = 1;
  int64_t max_in_flight = 10000;
  bool follow_health = false;
  ConnectionOptions connection;

  std::string inputs, replay;
  std::string ads = "200", ads_from;
  RandomRequestOptions random;  // But `ads`, and its seed is also that of the arrivals.
  int64_t pool = 1000;
  StatedShapes shapes;
  std::vector<std::string> outputs;
  int32_t top_k = 0;

  bool json = false, live = false;
  std::string plot;
};

// Reads the arguments.  Errors: those of FlagSet::Parse; usage errors name the flag.
absl::StatusOr<LoadOptions> ParseLoadOptions(Args args);

// "Poisson arrivals, 100/s", for titles.
std::string DescribeArrivals(const LoadOptions& options);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_LOAD_OPTIONS_H_
