// A cluster of key-value nodes asked by requests that need many of them, with a virtual clock.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_BENCH_FANOUT_MODEL_H_
#define ULFD_TESTS_BENCH_FANOUT_MODEL_H_

#include <cstdint>
#include <vector>

namespace ulfd::bench {

// Times in microseconds of virtual time.
struct FanoutCluster {
  int shards = 1000;
  int replicas = 2;        // Instances that hold a shard, the master among them.
  double fixed_us = 15;    // One command at a node, whatever it asks for.
  double key_us = 1;       // And each of its keys.
  double network_us = 60;  // There and back, median; log-normal.
  double network_spread = 0.4;
  double pause_every_us = 2e6;  // An instance stands still that often (fork, disk, neighbours) ...
  double pause_us = 3000;       // ... for so long; exponential both.
};

struct FanoutLoad {
  double requests_per_second = 1;
  int64_t requests = 1;
  int fan_out = 1;         // Different shards that a request asks, one command each.
  int keys_per_shard = 1;  // Of each command.
  // A second command goes to another replica if there is no answer after so long; infinity: never.
  double hedge_after_us = 0;
  double deadline_us = 5000;
  uint64_t seed = 1;
};

struct FanoutResult {
  std::vector<double> commands_us;  // Latency of each command, whichever replica was first.
  std::vector<double> requests_us;  // Of each request: its slowest command.
  int64_t hedges = 0;
  int64_t late_commands = 0;  // Answered after the deadline.
  int64_t late_requests = 0;  // With at least one such.
  double busy = 0;            // Mean share of the time that instances work, pauses apart.
};

// Commands go to a random replica of their shard.  An instance answers one after another, in the
// order of arrival, and answers also what came too late: a hedge is work, whoever wins.
FanoutResult RunFanout(const FanoutCluster& cluster, const FanoutLoad& load);

// The value below which the share `q` of the values lies; 0 without values.
double QuantileOf(std::vector<double> values, double q);

}  // namespace ulfd::bench

#endif  // ULFD_TESTS_BENCH_FANOUT_MODEL_H_
