// Simulates a machine of many workers under open-loop traffic with a virtual clock, and compares
// our scheduler (its own code, server/scheduler/job_queue.h) with three others: see README.md.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/sim_policies.h"

namespace ulfd::bench {
namespace {

struct Settings {
  int workers = 64;
  double seconds = 0.5;     // Of virtual time.
  double deadline_ms = 20;  // Of every request.
  double slower = 1;        // How many times longer everything takes than in TrueCost.
};

// How many ads requests have.
struct Trace {
  std::string name;
  int64_t (*draw)(std::mt19937_64&);
};

// Of MLPerf's DLRM: 100 to 700 user-item pairs, most of them few.
int64_t DrawMlperf(std::mt19937_64& random) {
  const double u = std::uniform_real_distribution<double>(0, 1)(random);
  return 100 + static_cast<int64_t>(600 * std::pow(u, 2.5));
}

// Of DeepRecSys: log-normal with a long tail; here 1 to 2000 ads, median 40.
int64_t DrawLogNormal(std::mt19937_64& random) {
  const double rows = std::lognormal_distribution<double>(std::log(40.0), 1.2)(random);
  return std::clamp<int64_t>(static_cast<int64_t>(rows), 1, 2000);
}

constexpr Trace kTraces[] = {{"log-normal", DrawLogNormal}, {"MLPerf", DrawMlperf}};
constexpr double kLoads[] = {0.3, 0.6, 0.8, 0.9, 1.0, 1.5, 3.0};
constexpr int64_t kSmallRows = 16;

struct Outcome {
  int64_t offered = 0, in_time = 0, late = 0, refused = 0;
  double p50 = 0, p99 = 0, p999 = 0, small_p99 = 0;  // Of those who were served.  Unit: ms.
  double goodput = 0;                                // Requests in time per second.
  double real_ns = 0;                                // Of this computer, per request.
};

double MeanCost(const Trace& trace, const TrueCost& cost) {
  std::mt19937_64 random(7);
  double sum = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) sum += cost.Of(1, trace.draw(random));
  return sum / kDraws;
}

// Poisson arrivals.
std::vector<SimRequest> MakeTraffic(const Trace& trace, double per_second,
                                    const Settings& settings) {
  std::mt19937_64 random(42);
  std::exponential_distribution<double> gap(per_second / 1e9);
  std::vector<SimRequest> requests;
  const auto deadline = static_cast<int64_t>(settings.deadline_ms * 1e6);
  for (double at = gap(random); at < settings.seconds * 1e9; at += gap(random)) {
    const auto ns = static_cast<int64_t>(at);
    requests.push_back(
        {.arrival_ns = ns, .deadline_ns = ns + deadline, .rows = trace.draw(random)});
  }
  return requests;
}

double Quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<int64_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

class Simulation {
 public:
  Simulation(const SimMachine& machine, const std::vector<SimRequest>& requests,
             const std::string& policy)
      : requests_(requests),
        policy_(MakePolicy(policy, machine, requests)),
        idle_(machine.workers) {}

  Outcome Run() {
    const auto begin = std::chrono::steady_clock::now();
    size_t next = 0;
    while (next < requests_.size() || !running_.empty() || policy_->NextTimer() > now_) {
      const int64_t arrival = next < requests_.size() ? requests_[next].arrival_ns : INT64_MAX;
      const int64_t done = running_.empty() ? INT64_MAX : running_.top().at_ns;
      int64_t timer = policy_->NextTimer();
      if (timer <= now_ || idle_ == 0) timer = INT64_MAX;
      now_ = std::min({arrival, done, timer});
      if (now_ == INT64_MAX) break;
      if (now_ == done) {
        Finish();
      } else if (now_ == arrival) {
        if (!policy_->Arrive(static_cast<int>(next), now_)) ++outcome_.refused;
        ++next;
      }
      Dispatch();
    }
    const auto real = std::chrono::steady_clock::now() - begin;
    return Sum(std::chrono::duration<double, std::nano>(real).count());
  }

 private:
  struct Running {
    int64_t at_ns, took_ns;
    SimPiece piece;
    bool operator<(const Running& other) const { return at_ns > other.at_ns; }
  };

  void Finish() {
    const Running running = running_.top();
    running_.pop();
    ++idle_;
    ended_.clear();
    policy_->Done(running.piece, running.took_ns, now_, ended_);
    for (const int request : ended_) {
      const SimRequest& r = requests_[request];
      const double ms = static_cast<double>(now_ - r.arrival_ns) / 1e6;
      latencies_.push_back(ms);
      if (r.rows <= kSmallRows) small_.push_back(ms);
      ++(now_ <= r.deadline_ns ? outcome_.in_time : outcome_.late);
    }
    CountDropped();
  }

  void Dispatch() {
    while (idle_ > 0) {
      const std::optional<SimPiece> piece = policy_->Take(idle_ - 1, now_);
      CountDropped();
      if (!piece.has_value()) return;
      --idle_;
      // Caches, interrupts: pieces of the same size do not take the same time.
      const double took = piece->cost_ns * std::lognormal_distribution<double>(0, 0.1)(random_);
      running_.push({now_ + static_cast<int64_t>(took), static_cast<int64_t>(took), *piece});
    }
  }

  void CountDropped() {
    ended_.clear();
    policy_->TakeDropped(ended_);
    outcome_.refused += static_cast<int64_t>(ended_.size());
  }

  Outcome Sum(double real_ns) {
    Outcome& out = outcome_;
    out.offered = static_cast<int64_t>(requests_.size());
    out.p50 = Quantile(latencies_, 0.5);
    out.p99 = Quantile(latencies_, 0.99);
    out.p999 = Quantile(latencies_, 0.999);
    out.small_p99 = Quantile(small_, 0.99);
    out.goodput =
        static_cast<double>(out.in_time) / (static_cast<double>(requests_.back().arrival_ns) / 1e9);
    out.real_ns = real_ns / static_cast<double>(out.offered);
    return out;
  }

  const std::vector<SimRequest>& requests_;
  const std::unique_ptr<SimPolicy> policy_;
  std::mt19937_64 random_{1};
  int idle_;
  int64_t now_ = 0;
  std::priority_queue<Running> running_;
  std::vector<int> ended_;
  std::vector<double> latencies_, small_;
  Outcome outcome_;
};

void RunTrace(const Trace& trace, const Settings& settings) {
  SimMachine machine{.workers = settings.workers};
  for (double* part : {&machine.cost.base_ns, &machine.cost.user_ns, &machine.cost.row_ns}) {
    *part *= settings.slower;
  }
  const double capacity = settings.workers * 1e9 / MeanCost(trace, machine.cost);
  std::cout << absl::StrFormat(
      "\n%s sizes, %d workers, capacity %.0f requests/s alone, deadline %g ms\n"
      "%6s %10s  %-9s %9s %9s %9s %12s %11s %8s %9s %8s\n",
      trace.name, settings.workers, capacity, settings.deadline_ms, "load", "requests/s",
      "scheduler", "p50 ms", "p99 ms", "p99.9 ms", "p99 <=16 ads", "in time/s", "late", "refused",
      "ns/req");
  for (const double load : kLoads) {
    const std::vector<SimRequest> requests = MakeTraffic(trace, load * capacity, settings);
    if (requests.empty()) continue;
    for (size_t p = 0; p < PolicyNames().size(); ++p) {
      const Outcome out = Simulation(machine, requests, PolicyNames()[p]).Run();
      const auto percent = [&](int64_t n) {
        return 100.0 * static_cast<double>(n) / static_cast<double>(out.offered);
      };
      std::cout << absl::StrFormat(
          "%5.0f%% %10.0f  %-9s %9.3f %9.3f %9.3f %12.3f %11.0f %7.2f%% %8.2f%% %8.0f\n",
          100 * load, load * capacity, PolicyNames()[p], out.p50, out.p99, out.p999, out.small_p99,
          out.goodput, percent(out.late), percent(out.refused), out.real_ns);
    }
  }
}

int Main(int argc, char** argv) {
  Settings settings;
  FlagSet flags("scheduler_sim [flags]",
                "Our scheduler beside three others, with a virtual clock.");
  flags.Add("workers", "Of the machine.", &settings.workers, 1);
  flags.Add("seconds", "Of virtual time.", &settings.seconds, 1e-6);
  flags.Add("deadline_ms", "Of every request.", &settings.deadline_ms, 1e-6);
  flags.Add("slower", "How many times longer everything takes than we expect.", &settings.slower,
            1e-6);
  return RunMain(argc, argv, flags, [&] {
    for (const Trace& trace : kTraces) RunTrace(trace, settings);
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace ulfd::bench

int main(int argc, char** argv) { return ulfd::bench::Main(argc, argv); }
