// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/fanout_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>
#include <random>

namespace ulfd::bench {
namespace {

// One instance: commands in order of arrival, with pauses in between.
class Instance {
 public:
  Instance(const FanoutCluster& cluster, std::mt19937_64& random)
      : every_(1 / cluster.pause_every_us), length_(1 / cluster.pause_us) {
    if (cluster.pause_us > 0) next_pause_ = every_(random);
  }

  // When a command that arrives now is answered.
  double Serve(double now, double service, std::mt19937_64& random) {
    const double begin = std::max(now, free_at_);
    free_at_ = AfterPauses(begin, random) + service;
    busy_ += service;
    return free_at_;
  }

  double busy() const { return busy_; }

 private:
  double AfterPauses(double at, std::mt19937_64& random) {
    while (next_pause_ <= at) {
      const double end = next_pause_ + length_(random);
      at = std::max(at, end);
      next_pause_ = end + every_(random);
    }
    return at;
  }

  std::exponential_distribution<double> every_, length_;
  double next_pause_ = std::numeric_limits<double>::infinity();
  double free_at_ = 0, busy_ = 0;
};

// A command on its way to an instance.
struct Arrival {
  double at;
  int64_t command;
  int instance;
  double back_us;  // What the answer will take on the network.
  bool hedge;
  bool operator<(const Arrival& other) const { return at > other.at; }
};

class Run {
 public:
  Run(const FanoutCluster& cluster, const FanoutLoad& load)
      : cluster_(cluster),
        load_(load),
        random_(load.seed),
        network_(std::log(cluster.network_us / 2), cluster.network_spread),
        service_(cluster.fixed_us + cluster.key_us * load.keys_per_shard) {
    for (int i = 0; i < cluster.shards * cluster.replicas; ++i) {
      instances_.emplace_back(cluster, random_);
    }
    shards_.resize(static_cast<size_t>(cluster.shards));
    std::iota(shards_.begin(), shards_.end(), 0);
    const auto commands = static_cast<size_t>(load.requests * load.fan_out);
    sent_.reserve(commands);
    answered_.assign(commands, std::numeric_limits<double>::infinity());
  }

  FanoutResult Do() {
    std::exponential_distribution<double> gap(load_.requests_per_second / 1e6);
    double now = gap(random_);
    for (int64_t request = 0; request < load_.requests; ++request) {
      while (!on_the_way_.empty() && on_the_way_.top().at < now) Arrive();
      Send(now);
      now += gap(random_);
    }
    while (!on_the_way_.empty()) Arrive();
    return Sum(now);
  }

 private:
  void Dispatch(int64_t command, int instance, double at, bool hedge) {
    on_the_way_.push({at + network_(random_), command, instance, network_(random_), hedge});
  }

  void Send(double now) {
    for (int i = 0; i < load_.fan_out; ++i) {  // Different shards: the head of a shuffle.
      std::uniform_int_distribution<size_t> rest(static_cast<size_t>(i), shards_.size() - 1);
      std::swap(shards_[static_cast<size_t>(i)], shards_[rest(random_)]);
      std::uniform_int_distribution<int> replica(0, cluster_.replicas - 1);
      const int instance = shards_[static_cast<size_t>(i)] * cluster_.replicas + replica(random_);
      Dispatch(static_cast<int64_t>(sent_.size()), instance, now, /*hedge=*/false);
      sent_.push_back(now);
    }
  }

  // A FIFO's answer is known as soon as a command arrives; whether it comes before the hedge, too.
  void Arrive() {
    const Arrival a = on_the_way_.top();
    on_the_way_.pop();
    const double done =
        instances_[static_cast<size_t>(a.instance)].Serve(a.at, service_, random_) + a.back_us;
    double& first = answered_[static_cast<size_t>(a.command)];
    first = std::min(first, done);
    const double hedge_at = sent_[static_cast<size_t>(a.command)] + load_.hedge_after_us;
    if (a.hedge || cluster_.replicas < 2 || done <= hedge_at) return;
    ++result_.hedges;
    std::uniform_int_distribution<int> other(1, cluster_.replicas - 1);
    const int replica = (a.instance + other(random_)) % cluster_.replicas;
    // A command may still be on its way when it is hedged: the clock does not go back.
    Dispatch(a.command, a.instance / cluster_.replicas * cluster_.replicas + replica,
             std::max(hedge_at, a.at), /*hedge=*/true);
  }

  FanoutResult Sum(double end) {
    for (int64_t request = 0; request < load_.requests; ++request) {
      double slowest = 0;
      for (int64_t c = request * load_.fan_out; c < (request + 1) * load_.fan_out; ++c) {
        const double us = answered_[static_cast<size_t>(c)] - sent_[static_cast<size_t>(c)];
        result_.commands_us.push_back(us);
        result_.late_commands += us > load_.deadline_us ? 1 : 0;
        slowest = std::max(slowest, us);
      }
      result_.requests_us.push_back(slowest);
      result_.late_requests += slowest > load_.deadline_us ? 1 : 0;
    }
    for (const Instance& instance : instances_) result_.busy += instance.busy();
    result_.busy /= end * static_cast<double>(instances_.size());
    return std::move(result_);
  }

  const FanoutCluster cluster_;
  const FanoutLoad load_;
  std::mt19937_64 random_;
  std::lognormal_distribution<double> network_;
  const double service_;
  std::vector<Instance> instances_;
  std::vector<int> shards_;
  std::vector<double> sent_, answered_;
  std::priority_queue<Arrival> on_the_way_;
  FanoutResult result_;
};

}  // namespace

FanoutResult RunFanout(const FanoutCluster& cluster, const FanoutLoad& load) {
  return Run(cluster, load).Do();
}

double QuantileOf(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<int64_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

}  // namespace ulfd::bench
