// What queueing theory and probabilities say, the model must show.
// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/fanout_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace ulfd::bench {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

FanoutCluster Quiet() {
  return {.shards = 1,
          .replicas = 1,
          .fixed_us = 10,
          .key_us = 0,
          .network_us = 2,
          .network_spread = 0,
          .pause_us = 0};
}

TEST(FanoutModelTest, OneNodeWaitsAsConstantServiceDoes) {
  // M/D/1: service + load / (2 (1 - load)) of it, and the network.
  for (const double load : {0.3, 0.7}) {
    const FanoutResult found = RunFanout(
        Quiet(), {.requests_per_second = load * 1e5, .requests = 300000, .hedge_after_us = kNever});
    EXPECT_NEAR(Mean(found.requests_us), 2 + 10 * (1 + load / (2 * (1 - load))), 0.5) << load;
    EXPECT_NEAR(found.busy, load, 0.02);
  }
}

TEST(FanoutModelTest, ARequestIsAsSlowAsItsSlowestCommand) {
  // Networks apart nothing takes time; the share q of requests of n commands is within quantile
  // q^(1/n) of one.
  FanoutCluster cluster = Quiet();
  cluster.shards = 50;
  cluster.fixed_us = 1e-6;
  cluster.network_spread = 0.5;
  const FanoutResult found = RunFanout(
      cluster,
      {.requests_per_second = 1, .requests = 20000, .fan_out = 20, .hedge_after_us = kNever});
  for (const double q : {0.5, 0.9}) {
    EXPECT_NEAR(QuantileOf(found.requests_us, q),
                QuantileOf(found.commands_us, std::pow(q, 1.0 / 20)), 0.03)
        << q;
  }
}

TEST(FanoutModelTest, ShardsOfARequestDiffer) {
  // Each of ten nodes gets exactly one command of each request: nothing waits.
  FanoutCluster cluster = Quiet();
  cluster.shards = 10;
  const FanoutResult found = RunFanout(
      cluster,
      {.requests_per_second = 1, .requests = 500, .fan_out = 10, .hedge_after_us = kNever});
  EXPECT_NEAR(QuantileOf(found.requests_us, 1), 12, 1e-6);
}

TEST(FanoutModelTest, AHedgeIsLateOnlyIfBothReplicasPause) {
  // An instance that pauses for 1000 us every 9000 us is found pausing in a tenth of the cases.
  FanoutCluster cluster = Quiet();
  cluster.shards = 200;
  cluster.replicas = 2;
  cluster.pause_every_us = 9000;
  cluster.pause_us = 1000;
  const FanoutLoad load{
      .requests_per_second = 2000, .requests = 100000, .hedge_after_us = kNever, .deadline_us = 14};
  const FanoutResult plain = RunFanout(cluster, load);
  EXPECT_NEAR(static_cast<double>(plain.late_commands) / 1e5, 0.1, 0.01);
  EXPECT_EQ(plain.hedges, 0);
  FanoutLoad hedged = load;
  hedged.hedge_after_us = 13;
  hedged.deadline_us = 13 + 14;
  const FanoutResult found = RunFanout(cluster, hedged);
  EXPECT_NEAR(static_cast<double>(found.hedges) / 1e5, 0.1, 0.01);
  EXPECT_NEAR(static_cast<double>(found.late_commands) / 1e5, 0.01, 0.002);
  EXPECT_EQ(found.late_commands, found.late_requests);
}

TEST(FanoutModelTest, TheSameSeedGivesTheSame) {
  const FanoutLoad load{
      .requests_per_second = 1e5, .requests = 1000, .fan_out = 30, .hedge_after_us = 200};
  EXPECT_EQ(RunFanout({}, load).commands_us, RunFanout({}, load).commands_us);
  FanoutLoad other = load;
  other.seed = 2;
  EXPECT_NE(RunFanout({}, load).commands_us, RunFanout({}, other).commands_us);
}

}  // namespace
}  // namespace ulfd::bench
