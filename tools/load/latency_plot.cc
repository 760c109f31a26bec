// The report as a picture: SVG without scripts or fonts of its own.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tools/load/load_report.h"

namespace ulfd::tools {
namespace {

constexpr double kWidth = 960, kHeight = 560, kLeft = 70, kRight = 20;
constexpr double kTop = 50, kSplit = 370, kSecond = 410, kBottom = 520;

std::string Escape(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

std::string Text(double x, double y, const char* anchor, const std::string& text,
                 const char* more = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y,
                         anchor, more, Escape(text));
}

std::string HorizontalLine(double y) {
  return absl::StrFormat("<path d=\"M%.1f %.1fH%.1f\" class=\"grid\"/>\n", kLeft, y,
                         kWidth - kRight);
}

using IntervalValue = std::function<double(const LoadInterval&)>;

class Plot {
 public:
  explicit Plot(const LoadReport& report) : report_(report) {
    seconds_ = std::max(report.interval_s,
                        static_cast<double>(report.intervals.size()) * report.interval_s);
    double low = 1e9, high = 0;
    for (const LoadInterval& interval : report.intervals) {
      most_ = std::max(most_, Rate(interval.sent + interval.unsent));
      if (interval.latency.count() == 0) continue;
      low = std::min(low, MsAt(interval, 0.5));
      high = std::max(high, MsAt(interval, 1));
    }
    if (high == 0) low = high = 1;
    // Whole decades, at least one.
    low_decade_ = std::floor(std::log10(std::max(low, 1e-3)));
    high_decade_ = std::max(low_decade_ + 1, std::ceil(std::log10(std::max(high, 1e-3))));
  }

  std::string Svg() const {
    std::string svg = absl::StrFormat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
        "height=\"%.0f\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n"
        "<style>.grid{stroke:#ddd;fill:none}.p50{stroke:#1f77b4}.p99{stroke:#ff7f0e}"
        ".max{stroke:#aaa}.ok{stroke:#2ca02c}.bad{stroke:#d62728}.due{stroke:#888;"
        "stroke-dasharray:4 3}.line{fill:none;stroke-width:1.5}</style>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
        kWidth, kHeight, kWidth, kHeight);
    const LoadOptions& o = report_.options;
    absl::StrAppend(
        &svg, Text(kLeft, 22, "start",
                   absl::StrCat("Model ", report_.model, " on ", absl::StrJoin(o.targets, ", "),
                                ": ", DescribeArrivals(o)),
                   " font-size=\"15\""));
    absl::StrAppend(&svg, Axes(), Warmup(), LatencyLines(), RateLines(), "</svg>\n");
    return svg;
  }

 private:
  static double MsAt(const LoadInterval& interval, double q) {
    return static_cast<double>(interval.latency.Quantile(q)) / 1e6;
  }
  double Rate(int64_t count) const { return static_cast<double>(count) / report_.interval_s; }
  double X(double seconds) const { return kLeft + seconds / seconds_ * (kWidth - kLeft - kRight); }
  double LatencyY(double ms) const {
    const double share =
        (std::log10(std::max(ms, 1e-6)) - low_decade_) / (high_decade_ - low_decade_);
    return kSplit - std::clamp(share, 0.0, 1.0) * (kSplit - kTop);
  }
  double RateY(double rate) const {
    return kBottom - (most_ > 0 ? rate / most_ : 0) * (kBottom - kSecond);
  }

  std::string Axes() const {
    std::string svg;
    for (double decade = low_decade_; decade <= high_decade_; ++decade) {
      const double ms = std::pow(10, decade), y = LatencyY(ms);
      absl::StrAppend(&svg, HorizontalLine(y),
                      Text(kLeft - 8, y + 4, "end", absl::StrFormat("%g ms", ms)));
    }
    for (const double rate : {0.0, most_}) {
      absl::StrAppend(&svg, HorizontalLine(RateY(rate)),
                      Text(kLeft - 8, RateY(rate) + 4, "end", absl::StrFormat("%.4g/s", rate)));
    }
    // About ten marks at round times.
    double step = std::pow(10, std::floor(std::log10(seconds_ / 5)));
    if (seconds_ / step > 25) step *= 5;
    if (seconds_ / step > 12) step *= 2;
    for (double t = 0; t <= seconds_ * 1.0001; t += step) {
      absl::StrAppend(&svg, Text(X(t), kBottom + 18, "middle", absl::StrFormat("%g s", t)));
    }
    return svg;
  }

  std::string Warmup() const {
    if (report_.warmup_s <= 0) return "";
    const double width = X(std::min(report_.warmup_s, seconds_)) - kLeft;
    return absl::StrFormat(
               "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#000\" "
               "fill-opacity=\".05\"/>\n",
               kLeft, kTop, width, kBottom - kTop) +
           Text(kLeft + 4, kTop + 14, "start", "warm-up", " fill=\"#888\"");
  }

  // A line through the intervals that have a value (not NaN); broken where one has none.
  std::string Line(const char* style, const std::function<double(double)>& y,
                   const IntervalValue& value) const {
    std::string path;
    bool pen_down = false;
    for (size_t i = 0; i < report_.intervals.size(); ++i) {
      const double v = value(report_.intervals[i]);
      if (std::isnan(v)) {
        pen_down = false;
        continue;
      }
      const double x = X((static_cast<double>(i) + 0.5) * report_.interval_s);
      absl::StrAppendFormat(&path, "%s%.1f %.1f", pen_down ? "L" : "M", x, y(v));
      // A lone point would not be seen.
      if (!pen_down) absl::StrAppend(&path, "h.5");
      pen_down = true;
    }
    if (path.empty()) return "";
    return absl::StrFormat("<path d=\"%s\" class=\"line %s\"/>\n", path, style);
  }

  std::string Legend(double y,
                     const std::vector<std::pair<const char*, const char*>>& entries) const {
    std::string svg;
    double x = kWidth - kRight - 110 * static_cast<double>(entries.size());
    for (const auto& [style, name] : entries) {
      absl::StrAppendFormat(&svg, "<path d=\"M%.1f %.1fh20\" class=\"line %s\"/>\n", x, y - 4,
                            style);
      absl::StrAppend(&svg, Text(x + 26, y, "start", name));
      x += 110;
    }
    return svg;
  }

  std::string LatencyLines() const {
    const auto at = [](double q) {
      return [q](const LoadInterval& i) { return i.latency.count() > 0 ? MsAt(i, q) : NAN; };
    };
    const auto y = [this](double ms) { return LatencyY(ms); };
    return absl::StrCat(Legend(kTop - 8, {{"max", "maximum"}, {"p99", "p99"}, {"p50", "p50"}}),
                        Line("max", y, at(1)), Line("p99", y, at(0.99)), Line("p50", y, at(0.5)));
  }

  std::string RateLines() const {
    const auto y = [this](double rate) { return RateY(rate); };
    return absl::StrCat(
        Legend(kSecond - 8, {{"due", "due"}, {"ok", "answered"}, {"bad", "failed"}}),
        Line("due", y, [this](const LoadInterval& i) { return Rate(i.sent + i.unsent); }),
        Line("ok", y, [this](const LoadInterval& i) { return Rate(i.ok); }),
        Line("bad", y, [this](const LoadInterval& i) {
          return i.failed + i.unsent > 0 ? Rate(i.failed + i.unsent) : NAN;
        }));
  }

  const LoadReport& report_;
  double seconds_ = 1, most_ = 0, low_decade_ = 0, high_decade_ = 1;
};

}  // namespace

std::string LatencyPlot(const LoadReport& report) { return Plot(report).Svg(); }

}  // namespace ulfd::tools
