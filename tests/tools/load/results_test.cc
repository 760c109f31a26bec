// What is counted, and what is said about it.
// SPDX-License-Identifier: Apache-2.0
#include "tools/load/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>

#include "absl/strings/str_cat.h"
#include "tools/load/load_report.h"

namespace ulfd::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

constexpr int64_t kMs = 1000000, kSecond = 1000000000;

CallOutcome Answered(int64_t intended, int64_t sent, int64_t done, int64_t ads = 10) {
  return {.intended_ns = intended, .sent_ns = sent, .done_ns = done, .ads = ads};
}

TEST(LoadResults, latency_counts_from_the_intended_time) {
  LoadResults results(0, kSecond, 1);
  results.Count(Answered(10 * kMs, 15 * kMs, 17 * kMs));
  const LoadFigures f = results.figures();
  EXPECT_EQ(f.corrected.max(), 7 * kMs);
  EXPECT_EQ(f.uncorrected.max(), 2 * kMs);
  EXPECT_EQ(f.send_lag.max(), 5 * kMs);
  EXPECT_EQ(f.ads_ok, 10);
}

TEST(LoadResults, the_warm_up_is_only_on_the_plot) {
  LoadResults results(kSecond, kSecond / 2, 1);
  results.Count(Answered(0, 0, 900 * kMs));
  results.Count(Answered(kSecond - 1, kSecond, 2 * kSecond));
  results.Count(Answered(kSecond, kSecond, kSecond + kMs));
  results.CountUnsent(kMs, Unsent::kInFlight);
  results.CountUnsent(kSecond + 1, Unsent::kNoTarget);
  CallOutcome failed = Answered(1, 1, 2);
  failed.code = 14;
  results.Count(failed);
  const LoadFigures f = results.figures();
  EXPECT_EQ(f.warmup_calls, 3);
  EXPECT_EQ(f.warmup_failed, 1);
  EXPECT_EQ(f.sent, 1);
  EXPECT_EQ(f.corrected.max(), kMs);
  EXPECT_THAT(f.unsent, ElementsAre(0, 1));
  // Intervals go by the intended time.
  const std::vector<LoadInterval> intervals = results.intervals();
  ASSERT_EQ(intervals.size(), 3u);
  EXPECT_EQ(intervals[0].sent, 2);
  EXPECT_EQ(intervals[0].failed, 1);
  EXPECT_EQ(intervals[0].unsent, 1);
  EXPECT_EQ(intervals[1].ok, 1);
  EXPECT_EQ(intervals[2].ok, 1);
}

TEST(LoadResults, failures_have_codes_and_reasons_of_their_own) {
  LoadResults results(0, kSecond, 2);
  CallOutcome call = Answered(0, 0, kMs);
  call.code = 8;
  call.target = 1;
  for (int i = 0; i < 3; ++i) {
    const std::string text = absl::StrCat("queue_full: ", 10 + i, " requests wait, limit 10");
    call.message = text;
    results.Count(call);
  }
  call.code = 4;
  call.message = "Deadline Exceeded";
  results.Count(call);
  results.Count(Answered(0, 0, 5 * kMs));
  const LoadFigures f = results.figures();
  EXPECT_THAT(f.codes, ElementsAre(Pair(0, 1), Pair(4, 1), Pair(8, 3)));
  EXPECT_THAT(f.reasons,
              ElementsAre(Pair("DEADLINE_EXCEEDED: Deadline Exceeded", 1),
                          Pair("RESOURCE_EXHAUSTED: queue_full: N requests wait, limit N", 3)));
  EXPECT_EQ(f.corrected.count(), 1);
  EXPECT_EQ(f.failures.count(), 4);
  EXPECT_EQ(f.targets[1].failed, 4);
  EXPECT_EQ(f.targets[0].ok, 1);
}

TEST(LoadResults, reasons_are_bounded) {
  LoadResults results(0, kSecond, 1);
  CallOutcome call = Answered(0, 0, kMs);
  call.code = 2;
  for (int i = 0; i < 300; ++i) {
    const std::string text(static_cast<size_t>(i), 'x');
    call.message = text;
    results.Count(call);
  }
  const LoadFigures f = results.figures();
  EXPECT_EQ(f.reasons.size(), kMaxReasons + 1);
  EXPECT_EQ(f.reasons.at("other"), 300 - static_cast<int64_t>(kMaxReasons));
}

TEST(LoadResults, calls_without_a_number_of_ads_count_as_one) {
  LoadResults results(0, kSecond, 1);
  results.Count(Answered(0, 0, kMs, 0));
  EXPECT_EQ(results.figures().by_ads.at(1).count(), 1);
}

TEST(LoadResults, live_points_cover_the_time_since_the_last) {
  LoadResults results(kSecond, kSecond, 1);
  results.Count(Answered(0, 0, kMs));  // The warm-up is shown live.
  EXPECT_EQ(results.TakeLive().ok, 1);
  EXPECT_EQ(results.TakeLive().ok, 0);
}

// A load of 10 s at 100/s with a stall and refusals in the sixth second.
LoadReport Example() {
  LoadReport report;
  report.options.targets = {"host:1", "host:2"};
  report.options.rate = 100;
  report.model = "a<b&c";
  report.counted_s = 9;
  report.warmup_s = 1;
  report.interval_s = 0.5;
  report.left = {0, 1};
  LoadResults results(kSecond, kSecond / 2, 2);
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t at = i * 10 * kMs;
    const bool stall = at >= 5 * kSecond && at < 6 * kSecond;
    CallOutcome call =
        Answered(at, at, at + (stall ? 400 * kMs : 2 * kMs), i % 50 == 0 ? 2000 : 10);
    if (stall && i % 4 == 0) {
      call.code = 8;
      call.message = "queue_full: 3 wait";
    }
    call.target = static_cast<int>(i % 2);
    results.Count(call);
  }
  report.figures = results.figures();
  report.intervals = results.intervals();
  return report;
}

TEST(LoadReport, text_has_every_part) {
  const std::string text = LoadReportText(Example());
  EXPECT_THAT(text, HasSubstr("Load on host:1, host:2: model a<b&c, Poisson arrivals, 100/s, "
                              "9.0 s after 1.0 s of warm-up"));
  EXPECT_TRUE(std::regex_search(text, std::regex("answered \\(goodput\\) +875 +97\\.2 +97\\.22")))
      << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("RESOURCE_EXHAUSTED: queue_full: N wait +25\n")))
      << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("corrected +875 +2\\.000 "))) << text;
  EXPECT_THAT(text, HasSubstr("8..15 ads"));
  EXPECT_THAT(text, HasSubstr("1024..2047 ads"));
  EXPECT_THAT(text, HasSubstr("host:2"));
  EXPECT_THAT(text, Not(HasSubstr("Note:")));
}

TEST(LoadReport, doubts_are_spoken_out) {
  LoadReport report = Example();
  report.figures.unsent[0] = 7;
  report.figures.warmup_failed = 2;
  report.interrupted = true;
  report.figures.send_lag.Record(500 * kMs, 1000);
  const std::string text = LoadReportText(report);
  EXPECT_THAT(text, HasSubstr("Note: 7 calls were not sent because 10000 were unanswered"));
  EXPECT_THAT(text, HasSubstr("Note: the load generator itself was late"));
  EXPECT_THAT(text, HasSubstr("Note: 2 calls failed during the warm-up"));
  EXPECT_THAT(text, HasSubstr("Note: interrupted"));
}

TEST(LoadReport, json_says_the_same) {
  const auto json = nlohmann::json::parse(LoadReportJson(Example()));
  EXPECT_EQ(json["calls"]["answered"], 875);
  EXPECT_EQ(json["codes"]["RESOURCE_EXHAUSTED"], 25);
  EXPECT_NEAR(json["goodput_per_second"].get<double>(), 875 / 9.0, 1e-9);
  EXPECT_NEAR(json["latency_ms"]["corrected"]["p50"].get<double>(), 2, 0.01);
  EXPECT_NEAR(json["latency_ms"]["corrected"]["p99"].get<double>(), 400, 1);
  // Every fiftieth call after the warm-up, but for the 500th, which was refused.
  EXPECT_EQ(json["latency_ms"]["by_ads"]["1024..2047"]["calls"], 17);
  EXPECT_EQ(json["targets"][1]["stopped_serving"], 1);
  EXPECT_EQ(json["series"].size(), 20u);
}

TEST(LoadReport, json_survives_texts_that_are_not_utf8) {
  LoadReport report = Example();
  report.figures.reasons["\xff\xfe"] = 1;
  EXPECT_FALSE(nlohmann::json::parse(LoadReportJson(report)).is_discarded());
}

// Every number after "y" coordinates of a path of that class.
std::vector<double> HeightsOf(const std::string& svg, const std::string& style) {
  std::smatch path;
  const std::regex line("<path d=\"([^\"]*L[^\"]*)\" class=\"line " + style + "\"/>");
  if (!std::regex_search(svg, path, line)) return {};
  std::vector<double> heights;
  const std::string d = path[1];
  const std::regex point("[ML]([0-9.]+) ([0-9.]+)");
  for (auto it = std::sregex_iterator(d.begin(), d.end(), point); it != std::sregex_iterator();
       ++it) {
    const double x = std::stod((*it)[1]), y = std::stod((*it)[2]);
    EXPECT_GE(x, 0);
    EXPECT_LE(x, 960);
    EXPECT_GE(y, 0);
    EXPECT_LE(y, 560);
    heights.push_back(y);
  }
  return heights;
}

TEST(LatencyPlot, shows_the_stall_where_it_was) {
  const std::string svg = LatencyPlot(Example());
  EXPECT_THAT(svg, HasSubstr("a&lt;b&amp;c"));
  EXPECT_THAT(svg, HasSubstr("warm-up"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  const std::vector<double> p99 = HeightsOf(svg, "p99"), answered = HeightsOf(svg, "ok");
  ASSERT_EQ(p99.size(), 20u);
  ASSERT_EQ(answered.size(), 20u);
  for (size_t i = 0; i < p99.size(); ++i) {
    const bool stall = i == 10 || i == 11;
    if (stall) {
      // Up is a smaller y: latency rose, answered calls fell.
      EXPECT_LT(p99[i], p99[0] - 50) << i;
      EXPECT_GT(answered[i], answered[0] + 5) << i;
    } else {
      EXPECT_EQ(p99[i], p99[0]) << i;
    }
  }
  EXPECT_EQ(HeightsOf(svg, "bad").size(), 2u);
}

TEST(LatencyPlot, of_nothing_is_still_a_picture) {
  LoadReport report;
  report.options.targets = {"host:1"};
  report.left = {0};
  report.figures.targets.resize(1);
  const std::string svg = LatencyPlot(report);
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(LoadReportText(report), HasSubstr("answered"));
}

TEST(LiveLine, fits_a_terminal) {
  LivePoint point;
  point.ok = 1234;
  point.failed = 5;
  point.unsent = 2;
  point.latency.Record(1500000, 1234);
  const std::string line = LiveLine(12.3, 1, 42, point);
  EXPECT_EQ(line,
            "  12.3 s    1234.0/s answered  p50 1.500  p99 1.500  max 1.500 ms  5.0/s failed  "
            "2.0/s not sent  42 in flight");
}

}  // namespace
}  // namespace ulfd::tools
