// Spans of a call, and which calls are among the slowest.
// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/call_summary.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace ulfd::server {
namespace {

using std::chrono::minutes;

CallSummary Taking(int64_t ns) {
  CallSummary call{.model = "rank"};
  call.times.total_ns = ns;
  return call;
}

TEST(SpansOfACall, LieInItOneBehindTheOther) {
  CallSummary call = Taking(1000);
  call.ended_at = std::chrono::system_clock::time_point(std::chrono::seconds(1700000000));
  call.times = {.queue_ns = 100,
                .decode_ns = 50,
                .user_ns = 300,
                .dense_ns = 400,
                .encode_ns = 60,
                .total_ns = 1000};
  call.trace = {.trace_id = {1}, .parent_id = {2}, .sampled = true};
  call.status = absl::NotFoundError("none");
  const std::vector<Span> spans = SpansOf(call);
  ASSERT_EQ(spans.size(), 6u);
  const int64_t end = int64_t{1700000000} * 1000000000;
  EXPECT_EQ(spans[0].start_ns, end - 1000);
  EXPECT_EQ(spans[0].end_ns, end);
  EXPECT_EQ(spans[0].parent_id, SpanId{2});
  EXPECT_EQ(spans[0].status, call.status);
  std::map<std::string, std::pair<int64_t, int64_t>> stages;  // From the start of the call.
  for (size_t i = 1; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].trace_id, TraceId{1});
    EXPECT_EQ(spans[i].parent_id, spans[0].span_id);
    stages[spans[i].name] = {spans[i].start_ns - end + 1000, spans[i].end_ns - end + 1000};
  }
  const std::map<std::string, std::pair<int64_t, int64_t>> wanted = {{"queue", {0, 100}},
                                                                     {"decode", {100, 150}},
                                                                     {"user part", {150, 450}},
                                                                     {"ad part", {450, 850}},
                                                                     {"encode", {850, 910}}};
  EXPECT_EQ(stages, wanted);
}

TEST(SlowCallsTest, KeepsTheSlowestOfAMinute) {
  SlowCalls slow;
  const TimePoint start(minutes(100));
  EXPECT_TRUE(slow.Among(1, start));
  for (int64_t ns = 1; ns <= 30; ++ns) {
    if (slow.Among(ns * 7 % 31, start)) slow.Add(Taking(ns * 7 % 31), start);
  }
  const auto found = [&](TimePoint now) {
    std::vector<int64_t> times;
    for (const CallSummary& call : slow.Slowest(now)) times.push_back(call.times.total_ns);
    return times;
  };
  const std::vector<int64_t> ten = {30, 29, 28, 27, 26, 25, 24, 23, 22, 21};
  EXPECT_EQ(found(start), ten);
  EXPECT_FALSE(slow.Among(21, start));
  EXPECT_TRUE(slow.Among(22, start));
  // The next minute begins anew; this one is shown until it is over.
  EXPECT_TRUE(slow.Among(1, start + minutes(1)));
  EXPECT_EQ(found(start + minutes(1)), ten);
  slow.Add(Taking(25), start + minutes(1));
  EXPECT_EQ(found(start + minutes(1)).size(), 11u);
  EXPECT_EQ(found(start + minutes(2)), std::vector<int64_t>{25});
  EXPECT_TRUE(found(start + minutes(3)).empty());
  // A call that ended late.
  slow.Add(Taking(50), start);
  EXPECT_EQ(found(start + minutes(1)).front(), 50);
}

}  // namespace
}  // namespace ulfd::server
