// ulf load: offers load to a running server.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text_file.h"
#include "tools/cli/commands.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/print.h"
#include "tools/client/connection.h"
#include "tools/load/load_generator.h"
#include "tools/load/load_options.h"
#include "tools/load/load_report.h"
#include "tools/load/load_targets.h"
#include "tools/load/request_source.h"
#include "tools/load/results.h"

namespace ulfd::tools {
namespace {

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

LoadPlan PlanOf(const LoadOptions& o, const Connector& connector, const RequestSource& requests) {
  LoadPlan plan;
  plan.duration_ns = absl::ToInt64Nanoseconds(o.duration);
  switch (o.arrival) {
    case ArrivalKind::kPoisson:
      plan.arrivals = PoissonArrivals(o.rate, o.random.seed);
      break;
    case ArrivalKind::kConstant:
      plan.arrivals = ConstantArrivals(o.rate);
      break;
    case ArrivalKind::kBursts:
      plan.arrivals = BurstArrivals(o.rate, o.bursts, o.random.seed);
      break;
    case ArrivalKind::kRecorded:
      plan.arrivals = RecordedArrivals(requests.recorded_times_ns(), o.speed, o.duration_given);
      if (!o.duration_given) plan.duration_ns = std::numeric_limits<int64_t>::max();
      break;
    case ArrivalKind::kClosedLoop:
      plan.concurrency = o.closed_loop;
      break;
  }
  plan.calls = o.calls;
  plan.timeout_us = absl::ToInt64Microseconds(o.timeout);
  plan.max_in_flight = o.max_in_flight;
  plan.metadata = connector.metadata();
  return plan;
}

// About a hundred points on the plot, of at least 100 ms.
int64_t IntervalNs(const LoadOptions& o) {
  const double seconds = absl::ToDoubleSeconds(o.duration);
  for (const double choice : {0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0}) {
    if (seconds / choice <= 120) return static_cast<int64_t>(choice * 1e9);
  }
  return int64_t{60} * 1000000000;
}

// Shows the live line until the generator is done; the first interrupt asks it to stop.
void Follow(const LoadGenerator& generator, LoadResults& results, bool live,
            const std::atomic<bool>& done, std::atomic<bool>& stop) {
  constexpr std::chrono::milliseconds kTick{20};
  constexpr int64_t kLineNs = 1000000000;
  const bool terminal = isatty(STDERR_FILENO) == 1;
  int64_t last = 0;
  while (!done.load()) {
    std::this_thread::sleep_for(kTick);
    if (Interrupted()) stop = true;
    const int64_t now = generator.NowNs();
    if ((!terminal && !live) || now - last < kLineNs) continue;
    const std::string line =
        LiveLine(static_cast<double>(now) / 1e9, static_cast<double>(now - last) / 1e9,
                 generator.in_flight(), results.TakeLive());
    std::fprintf(stderr, terminal ? "\r\x1b[K%s" : "%s\n", line.c_str());
    std::fflush(stderr);
    last = now;
  }
  if (terminal) std::fputs("\r\x1b[K", stderr);
}

std::vector<std::string> Notices(const LoadTargets& targets, const RequestSource& requests) {
  std::vector<std::string> notices;
  if (!requests.notice().empty()) notices.push_back(requests.notice());
  for (int i = 0; i < targets.size(); ++i) {
    if (!targets.without_health(i)) continue;
    notices.push_back(
        absl::StrCat(targets.address(i), " has no health service, and was taken for serving"));
  }
  return notices;
}

absl::StatusOr<LoadReport> RunPlan(const LoadOptions& o, const Connector& connector) {
  // The server as a whole, as a load balancer watches it.
  for (const std::string& target : o.targets) RETURN_IF_ERROR(CheckTarget(target));
  LoadTargets targets({.connector = connector,
                       .addresses = o.targets,
                       .channels = o.channels,
                       .follow_health = o.follow_health});
  if (o.follow_health &&
      !targets.WaitUntilServing(std::chrono::steady_clock::now() +
                                absl::ToChronoNanoseconds(std::max(o.timeout, absl::Seconds(5))))) {
    return Unavailable("no target says that it serves");
  }
  // With several targets any that answers tells about the model.
  const int first = std::max(0, targets.Pick());
  ASSIGN_OR_RETURN(const auto requests, RequestSource::Create(o, targets.connection(first)));
  LoadReport report;
  report.options = o;
  LoadPlan plan = PlanOf(o, connector, *requests);
  // A recording that is shorter than the usual warm-up counts from its beginning.
  const bool once = o.arrival == ArrivalKind::kRecorded && !o.duration_given;
  int64_t warmup_ns = absl::ToInt64Nanoseconds(o.warmup);
  const std::vector<int64_t>& times = requests->recorded_times_ns();
  if (once && !times.empty() &&
      static_cast<double>(times.back() - times.front()) / o.speed <=
          2 * static_cast<double>(warmup_ns)) {
    warmup_ns = 0;
  }
  LoadResults results(warmup_ns, IntervalNs(o), targets.size());
  const double cpu_before = CpuSeconds();
  LoadGenerator generator(std::move(plan), *requests, targets, results);
  std::atomic<bool> stop{false}, done{false};
  std::thread runner([&] {
    generator.Run(stop);
    done = true;
  });
  Follow(generator, results, o.live, done, stop);
  runner.join();

  report.client_wall_s = static_cast<double>(generator.NowNs()) / 1e9;
  report.client_cpu_s = CpuSeconds() - cpu_before;
  report.model = requests->model();
  report.requests = requests->pool_size();
  report.mean_bytes = requests->mean_bytes();
  report.warmup_s = static_cast<double>(warmup_ns) / 1e9;
  report.counted_s =
      std::max(0.0, static_cast<double>(generator.sent_until_ns()) / 1e9 - report.warmup_s);
  report.interrupted = stop;
  report.figures = results.figures();
  report.intervals = results.intervals();
  report.interval_s = static_cast<double>(results.interval_ns()) / 1e9;
  for (int i = 0; i < targets.size(); ++i) report.left.push_back(targets.left(i));
  report.notices = Notices(targets, *requests);
  return report;
}

}  // namespace

absl::Status RunLoad(Args args) {
  ASSIGN_OR_RETURN(const LoadOptions options, ParseLoadOptions(args));
  ASSIGN_OR_RETURN(const Connector connector, Connector::Create(options.connection));
  CatchInterrupts();  // What was measured until then is shown.
  ASSIGN_OR_RETURN(const LoadReport report, RunPlan(options, connector));
  const std::string text = options.json ? LoadReportJson(report) : LoadReportText(report);
  Print(stdout, text);
  if (!options.plot.empty()) RETURN_IF_ERROR(WriteTextFile(options.plot, LatencyPlot(report)));
  if (report.figures.ok > 0) return absl::OkStatus();
  if (report.figures.sent == 0 && report.figures.warmup_calls > report.figures.warmup_failed) {
    return Unavailable("no call was counted: all ", report.figures.warmup_calls,
                       " fell into the warm-up (--warmup=0s counts from the beginning)");
  }
  return Unavailable("no call was answered");
}

}  // namespace ulfd::tools
