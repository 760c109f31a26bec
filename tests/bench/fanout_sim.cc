// Simulates lookups of requests in a cluster of Redis nodes, with and without hedging: see
// docs/scale.md.
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/fanout_model.h"

namespace ulfd::bench {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kLoads[] = {0.2, 0.4, 0.6};
constexpr double kHedges[] = {0.9, 0.95, 0.99};  // Quantiles of a command's latency.

void Print(double share, const std::string& hedge, const FanoutResult& found,
           const FanoutLoad& load) {
  const auto percent = [](int64_t part, int64_t all) {
    return 100.0 * static_cast<double>(part) / static_cast<double>(all);
  };
  const int64_t commands = load.requests * load.fan_out;
  std::cout << absl::StrFormat(
      "%5.0f%%  %-9s %6.1f%% %8.1f%% %9.2f %9.2f %9.2f %9.2f %9.2f %10.3f%% %9.2f%%\n", 100 * share,
      hedge, 100 * found.busy, percent(found.hedges, commands),
      QuantileOf(found.commands_us, 0.5) / 1e3, QuantileOf(found.commands_us, 0.99) / 1e3,
      QuantileOf(found.requests_us, 0.5) / 1e3, QuantileOf(found.requests_us, 0.99) / 1e3,
      QuantileOf(found.requests_us, 0.999) / 1e3, percent(found.late_commands, commands),
      percent(found.late_requests, load.requests));
}

void RunLoads(const FanoutCluster& cluster, FanoutLoad load) {
  const double service = cluster.fixed_us + cluster.key_us * load.keys_per_shard;
  const double capacity = 1e6 * cluster.shards * cluster.replicas / (service * load.fan_out);
  std::cout << absl::StrFormat(
      "%d shards of %d instances, %d shards asked per request with %d keys each: at most %.0f "
      "requests/s\n%6s  %-9s %7s %9s %9s %9s %9s %9s %9s %11s %10s\n",
      cluster.shards, cluster.replicas, load.fan_out, load.keys_per_shard, capacity, "load",
      "hedge", "busy", "hedged", "cmd p50", "cmd p99", "p50 ms", "p99 ms", "p99.9 ms", "rows late",
      "requests");
  for (const double share : kLoads) {
    load.requests_per_second = share * capacity;
    load.hedge_after_us = kNever;
    const FanoutResult plain = RunFanout(cluster, load);
    Print(share, "none", plain, load);
    for (const double quantile : kHedges) {
      load.hedge_after_us = QuantileOf(plain.commands_us, quantile);
      Print(share, absl::StrFormat("after p%.0f", 100 * quantile), RunFanout(cluster, load), load);
    }
  }
}

int Main(int argc, char** argv) {
  FanoutCluster cluster;
  FanoutLoad load{.requests = 20000, .fan_out = 100, .keys_per_shard = 1};
  FlagSet flags("fanout_sim [flags]",
                "Lookups in a cluster of Redis nodes, hedged after quantiles of their latency.");
  flags.Add("shards", "Parts of the tables.", &cluster.shards, 1);
  flags.Add("replicas", "Instances that hold each.", &cluster.replicas, 1);
  flags.Add("fixed_us", "Of one command.", &cluster.fixed_us, 1e-6);
  flags.Add("key_us", "Of each key.", &cluster.key_us, 0);
  flags.Add("network_us", "There and back, median.", &cluster.network_us, 1e-6);
  flags.Add("pause_every_us", "Between pauses of an instance, mean.", &cluster.pause_every_us, 1);
  flags.Add("pause_us", "Length of a pause, mean; 0: none.", &cluster.pause_us, 0);
  flags.Add("requests", "How many.", &load.requests, 1);
  flags.Add("fan_out", "Shards that a request asks.", &load.fan_out, 1);
  flags.Add("keys", "That it asks of each.", &load.keys_per_shard, 1);
  flags.Add("deadline_us", "After which rows are missing.", &load.deadline_us, 1);
  return RunMain(argc, argv, flags, [&]() -> absl::Status {
    if (load.fan_out > cluster.shards) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--fan_out=%d: more than the %d shards", load.fan_out, cluster.shards));
    }
    RunLoads(cluster, load);
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace ulfd::bench

int main(int argc, char** argv) { return ulfd::bench::Main(argc, argv); }
