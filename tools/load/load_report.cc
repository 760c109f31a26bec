// SPDX-License-Identifier: Apache-2.0
#include "tools/load/load_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/cli/text_table.h"

namespace ulfd::tools {
namespace {

double Ms(double ns) { return ns / 1e6; }
// Three digits that mean something.
std::string MsText(double ns) {
  const double ms = Ms(ns);
  return absl::StrFormat("%.*f", ms < 10 ? 3 : ms < 100 ? 2 : 1, ms);
}

double PerSecond(int64_t count, const LoadReport& report) {
  return report.counted_s > 0 ? static_cast<double>(count) / report.counted_s : 0;
}

double Share(int64_t part, int64_t whole) {
  return whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

void AddLatency(const std::string& name, const LatencyHistogram& h, TextTable& table) {
  if (h.count() == 0) return;
  const auto at = [&](double q) { return MsText(static_cast<double>(h.Quantile(q))); };
  table.AddRow({name, WithCommas(h.count()), MsText(static_cast<double>(h.min())), MsText(h.mean()),
                at(0.5), at(0.9), at(0.99), at(0.999), MsText(static_cast<double>(h.max()))});
}

std::string Counts(const LoadReport& r) {
  const LoadFigures& f = r.figures;
  const int64_t unsent = f.unsent[0] + f.unsent[1], due = f.sent + unsent;
  TextTable table({"", "calls>", "calls/s>", "%>", "ads/s>"});
  const auto row = [&](const char* name, int64_t count, const std::string& ads) {
    table.AddRow({name, WithCommas(count), absl::StrFormat("%.1f", PerSecond(count, r)),
                  absl::StrFormat("%.2f", Share(count, due)), ads});
  };
  row("due", due, "");
  row("sent", f.sent, "");
  row("answered (goodput)", f.ok, HumanNumber(PerSecond(f.ads_ok, r)));
  row("failed", f.failed, "");
  if (f.unsent[0] > 0) row("not sent: max_in_flight", f.unsent[0], "");
  if (f.unsent[1] > 0) row("not sent: nothing serves", f.unsent[1], "");
  return table.ToString();
}

std::string Latencies(const LoadReport& r) {
  const LoadFigures& f = r.figures;
  TextTable table(
      {"latency, ms", "calls>", "min>", "mean>", "p50>", "p90>", "p99>", "p99.9>", "max>"});
  const bool closed = r.options.arrival == ArrivalKind::kClosedLoop;
  // A closed loop sends when it can; what it did not send in the meantime is put back.
  AddLatency("corrected",
             closed ? f.corrected.CorrectedFor(f.corrected.Quantile(0.5)) : f.corrected, table);
  AddLatency("uncorrected", f.uncorrected, table);
  AddLatency("failed calls", f.failures, table);
  if (!closed) AddLatency("sent late by", f.send_lag, table);
  if (f.by_ads.size() > 1) {
    for (const auto& [bits, histogram] : f.by_ads) {
      const int64_t low = int64_t{1} << (bits - 1);
      AddLatency(absl::StrCat("  ", low, "..", 2 * low - 1, " ads"), histogram, table);
    }
  }
  return table.empty() ? "" : table.ToString();
}

std::string Failures(const LoadFigures& f) {
  TextTable table({"code, and why", "calls>"});
  for (const auto& [code, count] : f.codes) table.AddRow({CodeName(code), WithCommas(count)});
  for (const auto& [reason, count] : f.reasons) {
    table.AddRow({absl::StrCat("  ", reason), WithCommas(count)});
  }
  return table.empty() ? "" : table.ToString();
}

std::string Targets(const LoadReport& r) {
  if (r.options.targets.size() < 2 && !r.options.follow_health) return "";
  TextTable table({"target", "sent>", "answered>", "failed>", "stopped serving>"});
  for (size_t i = 0; i < r.options.targets.size(); ++i) {
    const TargetFigures& target = r.figures.targets[i];
    table.AddRow({r.options.targets[i], WithCommas(target.sent), WithCommas(target.ok),
                  WithCommas(target.failed),
                  r.options.follow_health ? WithCommas(r.left[i]) : "-"});
  }
  return absl::StrCat("\n", table.ToString());
}

}  // namespace

std::vector<std::string> Doubts(const LoadReport& r) {
  std::vector<std::string> doubts = r.notices;
  const LoadFigures& f = r.figures;
  if (f.unsent[0] > 0) {
    doubts.push_back(
        absl::StrCat(f.unsent[0], " calls were not sent because ", r.options.max_in_flight,
                     " were unanswered: the latencies leave out the worst (see --max_in_flight)"));
  }
  constexpr int64_t kLateNs = 1000000;
  const int64_t late = f.send_lag.Quantile(0.99);
  if (r.options.arrival != ArrivalKind::kClosedLoop && late > kLateNs &&
      late > f.uncorrected.Quantile(0.99) / 10) {
    doubts.push_back(
        absl::StrFormat("the load generator itself was late (p99 %.1f ms): it has too little CPU, "
                        "and the corrected "
                        "latencies include that",
                        Ms(static_cast<double>(late))));
  }
  if (f.warmup_failed > 0) {
    doubts.push_back(absl::StrCat(f.warmup_failed, " calls failed during the warm-up"));
  }
  if (r.interrupted) doubts.push_back("interrupted: the load ended early");
  return doubts;
}

std::string LoadReportText(const LoadReport& r) {
  const LoadOptions& o = r.options;
  std::string text = absl::StrCat(
      "Load on ", absl::StrJoin(o.targets, ", "), ": model ", r.model, ", ", DescribeArrivals(o),
      ", ", absl::StrFormat("%.1f s after %.1f s of warm-up", r.counted_s, r.warmup_s), "\n");
  absl::StrAppend(&text, "Requests: ",
                  r.requests == 0 ? "each made up anew"
                                  : absl::StrCat(WithCommas(r.requests), " different ones"),
                  ", ", HumanBytes(static_cast<int64_t>(r.mean_bytes)), " on average, seed ",
                  o.random.seed, "\n\n");
  absl::StrAppend(&text, Counts(r), "\n", Latencies(r), "\n", Failures(r.figures), Targets(r));
  absl::StrAppendFormat(
      &text, "\nLoad generator: %.2f CPUs, %.0f us of CPU per call\n",
      r.client_wall_s > 0 ? r.client_cpu_s / r.client_wall_s : 0,
      1e6 * r.client_cpu_s /
          static_cast<double>(std::max<int64_t>(1, r.figures.sent + r.figures.warmup_calls)));
  for (const std::string& doubt : Doubts(r)) absl::StrAppend(&text, "Note: ", doubt, "\n");
  return text;
}

std::string LiveLine(double now_s, double since_s, int64_t in_flight, const LivePoint& point) {
  const auto rate = [&](int64_t n) { return since_s > 0 ? static_cast<double>(n) / since_s : 0; };
  const auto ms = [](int64_t ns) { return MsText(static_cast<double>(ns)); };
  std::string line = absl::StrFormat("%6.1f s  %8.1f/s answered", now_s, rate(point.ok));
  if (point.ok > 0) {
    absl::StrAppend(&line, "  p50 ", ms(point.latency.Quantile(0.5)), "  p99 ",
                    ms(point.latency.Quantile(0.99)), "  max ", ms(point.latency.max()), " ms");
  }
  if (point.failed > 0) absl::StrAppendFormat(&line, "  %.1f/s failed", rate(point.failed));
  if (point.unsent > 0) absl::StrAppendFormat(&line, "  %.1f/s not sent", rate(point.unsent));
  return absl::StrCat(line, "  ", in_flight, " in flight");
}

}  // namespace ulfd::tools
