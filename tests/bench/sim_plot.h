// Line plots side by side, as SVG.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_BENCH_SIM_PLOT_H_
#define ULFD_TESTS_BENCH_SIM_PLOT_H_

#include <string>
#include <utility>
#include <vector>

namespace ulfd::bench {

struct PlotLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y
};

struct PlotPanel {
  std::string title, x_label, y_label;
  bool log_y = false;
  std::vector<PlotLine> lines;  // Of the same names in every panel: they share a legend.
};

std::string Svg(const std::string& title, const std::vector<PlotPanel>& panels);

}  // namespace ulfd::bench

#endif  // ULFD_TESTS_BENCH_SIM_PLOT_H_
