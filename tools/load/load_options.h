// What `ulf load` is asked to do, checked.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_LOAD_OPTIONS_H_
#define ULFD_TOOLS_LOAD_LOAD_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/flags/flag_set.h"
#include "tools/cli/connection_flags.h"
#include "tools/load/arrivals.h"
#include "tools/load/model_inputs.h"

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
  int64_t users = 100000, user_ids = 20, ad_ids = 1, pool = 1000;
  double user_zipf = 1, id_zipf = 0.8;
  int64_t first_id = 1, last_id = 100000, first_int = 1, last_int = 1;
  std::map<std::string, int64_t> feature_ids;
  StatedShapes shapes;
  std::vector<std::string> outputs;
  int32_t top_k = 0;
  uint64_t seed = 1;

  bool json = false, live = false;
  std::string plot;
};

// Reads the arguments.  `*help` is set, and help printed, for --help.  Usage errors name the flag.
absl::StatusOr<LoadOptions> ParseLoadOptions(Args args, bool* help);

// "Poisson arrivals, 100/s", for titles.
std::string DescribeArrivals(const LoadOptions& options);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_LOAD_OPTIONS_H_
