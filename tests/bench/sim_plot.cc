// Draws panels, two in a row.
// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/sim_plot.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ulfd::bench {
namespace {

constexpr double kWidth = 460, kHeight = 300, kLeft = 70, kRight = 15, kTop = 40, kBottom = 50;
constexpr const char* kColours[] = {"#0b6e4f", "#c1121f", "#3a6ea5", "#f4a300"};

class Panel {
 public:
  explicit Panel(const PlotPanel& panel) : panel_(panel) {
    for (const PlotLine& line : panel.lines) {
      for (const auto& [x, y] : line.points) {
        max_x_ = std::max(max_x_, x);
        max_y_ = std::max(max_y_, y);
        if (y > 0) min_y_ = std::min(min_y_, y);
      }
    }
    if (!panel.log_y) min_y_ = 0;
    if (panel.log_y) {
      min_y_ = std::pow(10, std::floor(std::log10(std::max(min_y_, 1e-9))));
      max_y_ = std::pow(10, std::ceil(std::log10(std::max(max_y_, 10 * min_y_))));
    } else {
      max_y_ *= 1.05;
    }
  }

  std::string Draw() const {
    std::string out = absl::StrFormat(
        "<text x='%g' y='22' class='t'>%s</text>"
        "<rect x='%g' y='%g' width='%g' height='%g' fill='none' stroke='#888'/>"
        "<text x='%g' y='%g' text-anchor='middle'>%s</text>"
        "<text transform='translate(16 %g) rotate(-90)' text-anchor='middle'>%s</text>\n",
        kLeft, panel_.title, kLeft, kTop, kWidth - kLeft - kRight, kHeight - kTop - kBottom,
        (kLeft + kWidth - kRight) / 2, kHeight - 12, panel_.x_label, kHeight / 2, panel_.y_label);
    for (const double y : Ticks()) {
      absl::StrAppendFormat(&out,
                            "<line x1='%g' x2='%g' y1='%g' y2='%g' stroke='#ddd'/>"
                            "<text x='%g' y='%g' text-anchor='end'>%g</text>\n",
                            kLeft, kWidth - kRight, Y(y), Y(y), kLeft - 6, Y(y) + 4, y);
    }
    for (double x = 0; x <= max_x_ + 1e-9; x += max_x_ > 200 ? 100 : 20) {
      absl::StrAppendFormat(&out, "<text x='%g' y='%g' text-anchor='middle'>%g</text>\n", X(x),
                            kHeight - kBottom + 16, x);
    }
    for (size_t i = 0; i < panel_.lines.size(); ++i) {
      std::string path;
      for (const auto& [x, y] : panel_.lines[i].points) {
        absl::StrAppendFormat(&path, "%s%.1f,%.1f", path.empty() ? "" : " ", X(x), Y(y));
      }
      absl::StrAppendFormat(&out,
                            "<polyline points='%s' fill='none' stroke='%s' stroke-width='2'/>\n",
                            path, kColours[i % 4]);
    }
    return out;
  }

 private:
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    if (panel_.log_y) {
      for (double y = min_y_; y <= max_y_ * 1.01; y *= 10) ticks.push_back(y);
    } else {
      for (int i = 0; i <= 5; ++i) ticks.push_back(std::round(max_y_ * i * 20) / 100);
    }
    return ticks;
  }
  double X(double x) const { return kLeft + (kWidth - kLeft - kRight) * x / max_x_; }
  double Y(double y) const {
    double part = y / max_y_;
    if (panel_.log_y) {
      part = std::log(std::max(y, min_y_) / min_y_) / std::log(max_y_ / min_y_);
    }
    return kHeight - kBottom - (kHeight - kTop - kBottom) * part;
  }

  const PlotPanel& panel_;
  double max_x_ = 1e-9, min_y_ = 1e300, max_y_ = 1e-9;
};

}  // namespace

std::string Svg(const std::string& title, const std::vector<PlotPanel>& panels) {
  constexpr double kHeader = 50;
  const auto rows = static_cast<double>((panels.size() + 1) / 2);
  std::string out = absl::StrFormat(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %g %g'>\n"
      "<style>text{font:12px sans-serif}.t{font-weight:bold}</style>\n"
      "<rect width='100%%' height='100%%' fill='white'/><text x='20' y='20' class='t'>%s</text>\n",
      2 * kWidth, kHeader + rows * kHeight, title);
  if (!panels.empty()) {
    for (size_t i = 0; i < panels[0].lines.size(); ++i) {
      const double x = 20 + 110 * static_cast<double>(i);
      absl::StrAppendFormat(&out,
                            "<line x1='%g' x2='%g' y1='36' y2='36' stroke='%s' stroke-width='3'/>"
                            "<text x='%g' y='40'>%s</text>\n",
                            x, x + 20, kColours[i % 4], x + 26, panels[0].lines[i].name);
    }
  }
  for (size_t i = 0; i < panels.size(); ++i) {
    absl::StrAppendFormat(&out, "<g transform='translate(%g %g)'>\n%s</g>\n",
                          static_cast<double>(i % 2) * kWidth,
                          kHeader + static_cast<double>(i / 2) * kHeight, Panel(panels[i]).Draw());
  }
  return out + "</svg>\n";
}

}  // namespace ulfd::bench
