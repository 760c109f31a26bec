// What is said after a load: for people, for programs, and as a picture.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_LOAD_REPORT_H_
#define ULFD_TOOLS_LOAD_LOAD_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/load/histogram.h"
#include "tools/load/load_options.h"
#include "tools/load/results.h"

namespace ulfd::tools {

struct LoadReport {
  LoadOptions options;
  std::string model;      // As RequestSource says.
  int64_t requests = 0;   // Different ones; 0: each was new.
  double mean_bytes = 0;  // Of a request.
  double counted_s = 0;   // Time for which calls were counted, without the warm-up.
  double warmup_s = 0;
  bool interrupted = false;
  double client_cpu_s = 0, client_wall_s = 0;
  LoadFigures figures;
  std::vector<LoadInterval> intervals;
  double interval_s = 1;
  std::vector<int64_t> left;         // Per target: how often it stopped serving.
  std::vector<std::string> notices;  // What the reader should know before trusting the figures.
};

// What makes figures doubtful: calls that were sent late, or not at all.
std::vector<std::string> Doubts(const LoadReport& report);

std::string LoadReportText(const LoadReport& report);
std::string LoadReportJson(const LoadReport& report);
// One line, for a load that goes on: so long after its start, so long after the last line.
std::string LiveLine(double now_s, double since_s, int64_t in_flight, const LivePoint& point);

// Latency (p50, p99, maximum; logarithmic) above, calls a second below, both over time.
std::string LatencyPlot(const LoadReport& report);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_LOAD_REPORT_H_
