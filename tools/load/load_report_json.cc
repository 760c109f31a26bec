// The report as JSON.  Latencies are milliseconds, times seconds, sizes bytes.
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tools/load/load_report.h"

namespace ulfd::tools {
namespace {

using nlohmann::ordered_json;

double Ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

ordered_json Latency(const LatencyHistogram& h) {
  return {{"calls", h.count()},
          {"min", Ms(h.min())},
          {"mean", h.mean() / 1e6},
          {"p50", Ms(h.Quantile(0.5))},
          {"p90", Ms(h.Quantile(0.9))},
          {"p99", Ms(h.Quantile(0.99))},
          {"p999", Ms(h.Quantile(0.999))},
          {"max", Ms(h.max())}};
}

ordered_json Load(const LoadReport& r) {
  const LoadOptions& o = r.options;
  return {{"targets", o.targets},
          {"model", r.model},
          {"api", o.api == LoadApi::kNative ? "native" : "kserve"},
          {"arrivals", DescribeArrivals(o)},
          {"seed", o.random.seed},
          {"warmup_seconds", r.warmup_s},
          {"counted_seconds", r.counted_s},
          {"different_requests", r.requests},
          {"mean_request_bytes", r.mean_bytes},
          {"interrupted", r.interrupted}};
}

ordered_json Series(const LoadReport& r) {
  ordered_json series = ordered_json::array();
  for (size_t i = 0; i < r.intervals.size(); ++i) {
    const LoadInterval& interval = r.intervals[i];
    series.push_back({{"begin_seconds", static_cast<double>(i) * r.interval_s},
                      {"sent", interval.sent},
                      {"answered", interval.ok},
                      {"failed", interval.failed},
                      {"unsent", interval.unsent},
                      {"p50_ms", Ms(interval.latency.Quantile(0.5))},
                      {"p99_ms", Ms(interval.latency.Quantile(0.99))},
                      {"max_ms", Ms(interval.latency.max())}});
  }
  return series;
}

}  // namespace

std::string LoadReportJson(const LoadReport& r) {
  const LoadFigures& f = r.figures;
  const double seconds = r.counted_s > 0 ? r.counted_s : 1;
  const bool closed = r.options.arrival == ArrivalKind::kClosedLoop;
  ordered_json codes = ordered_json::object(), by_ads = ordered_json::object();
  for (const auto& [code, count] : f.codes) codes[CodeName(code)] = count;
  for (const auto& [bits, histogram] : f.by_ads) {
    const int64_t low = int64_t{1} << (bits - 1);
    by_ads[absl::StrCat(low, "..", 2 * low - 1)] = Latency(histogram);
  }
  ordered_json targets = ordered_json::array();
  for (size_t i = 0; i < r.options.targets.size(); ++i) {
    targets.push_back({{"address", r.options.targets[i]},
                       {"sent", f.targets[i].sent},
                       {"answered", f.targets[i].ok},
                       {"failed", f.targets[i].failed},
                       {"stopped_serving", r.left[i]}});
  }
  const ordered_json all = {
      {"load", Load(r)},
      {"calls",
       {{"due", f.sent + f.unsent[0] + f.unsent[1]},
        {"sent", f.sent},
        {"answered", f.ok},
        {"failed", f.failed},
        {"unsent_in_flight", f.unsent[0]},
        {"unsent_no_target", f.unsent[1]},
        {"during_warmup", f.warmup_calls},
        {"failed_during_warmup", f.warmup_failed}}},
      {"due_per_second", static_cast<double>(f.sent + f.unsent[0] + f.unsent[1]) / seconds},
      {"goodput_per_second", static_cast<double>(f.ok) / seconds},
      {"goodput_ads_per_second", static_cast<double>(f.ads_ok) / seconds},
      {"codes", codes},
      {"reasons", f.reasons},
      {"latency_ms",
       {{"corrected",
         Latency(closed ? f.corrected.CorrectedFor(f.corrected.Quantile(0.5)) : f.corrected)},
        {"uncorrected", Latency(f.uncorrected)},
        {"failed_calls", Latency(f.failures)},
        {"sent_late_by", Latency(f.send_lag)},
        {"by_ads", by_ads}}},
      {"targets", targets},
      {"client", {{"cpu_seconds", r.client_cpu_s}, {"wall_seconds", r.client_wall_s}}},
      {"interval_seconds", r.interval_s},
      {"series", Series(r)},
      {"notes", Doubts(r)}};
  // Reasons come from servers: what is not UTF-8 must not end the program.
  return all.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace ulfd::tools
