// Counting and its export: values, labels, and that labels stay bounded.
// SPDX-License-Identifier: Apache-2.0
#include "server/observe/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/observe/process_metrics.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_model.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class MetricsTest : public ::testing::Test {
 protected:
  ServedModel Served(const std::string& name, int64_t version, int64_t generation) {
    const std::string path = dir_.File(name + "/" + std::to_string(version));
    ulfd::testing::WriteTinyModel(path);
    auto model = engine::Model::Load({.directory = path});
    EXPECT_TRUE(model.ok()) << model.status();
    return {.model = *std::move(model), .name = name, .version = version, .generation = generation};
  }
  std::string Page() const {
    MetricPage page;
    metrics_.Collect(page);
    return page.Text();
  }

  TempDir dir_;
  Metrics metrics_{2};
};

TEST_F(MetricsTest, ASeriesIsThereFromThePublicationOn) {
  EXPECT_THAT(Page(), Not(HasSubstr("tiny")));
  metrics_.CountPublished(Served("tiny", 3, 1), milliseconds(70));
  EXPECT_THAT(Page(),
              HasSubstr("ulfd_requests_total{model=\"tiny\",version=\"3\",code=\"OK\"} 0\n"));
  EXPECT_THAT(Page(),
              HasSubstr("ulfd_request_duration_seconds_count{model=\"tiny\",version=\"3\"} 0\n"));
  EXPECT_THAT(Page(),
              HasSubstr("ulfd_model_load_duration_seconds_bucket{model=\"tiny\",le=\"0.1\"} 1\n"));
  EXPECT_THAT(
      Page(),
      HasSubstr("ulfd_embedding_missing_keys_total{model=\"tiny\",table=\"mid_table\"} 0\n"));
}

TEST_F(MetricsTest, CountsCallsAndStages) {
  const ServedModel served = Served("tiny", 3, 1);
  const auto series = metrics_.For(served);
  series->calls->codes.Add(absl::StatusCode::kOk);
  series->calls->codes.Add(absl::StatusCode::kOk);
  series->calls->codes.Add(absl::StatusCode::kInvalidArgument);
  series->calls->duration.Observe(1, 75'000'000);
  series->calls->duration.Observe(2, 75'000'001);
  series->model->stages[static_cast<int>(Stage::kDense)].Observe(1, 5);
  series->model->candidates.Add(200);
  series->model->candidates_per_request.Observe(0, 200);
  for (const auto& table : series->tables) {
    table->missing.Add(4);
    table->looked_up.Add(9);
  }
  const std::string page = Page();
  for (const char* line :
       {"ulfd_requests_total{model=\"tiny\",version=\"3\",code=\"OK\"} 2\n",
        "ulfd_requests_total{model=\"tiny\",version=\"3\",code=\"INVALID_ARGUMENT\"} 1\n",
        "ulfd_request_duration_seconds_bucket{model=\"tiny\",version=\"3\",le=\"0.05\"} 0\n",
        "ulfd_request_duration_seconds_bucket{model=\"tiny\",version=\"3\",le=\"0.075\"} 1\n",
        "ulfd_request_duration_seconds_bucket{model=\"tiny\",version=\"3\",le=\"0.1\"} 2\n",
        "ulfd_request_duration_seconds_bucket{model=\"tiny\",version=\"3\",le=\"+Inf\"} 2\n",
        "ulfd_request_duration_seconds_sum{model=\"tiny\",version=\"3\"} 0.150000001\n",
        "ulfd_stage_duration_seconds_count{model=\"tiny\",stage=\"dense\"} 1\n",
        "ulfd_embedding_missing_keys_total{model=\"tiny\",table=\"mid_table\"} 4\n",
        "ulfd_embedding_lookups_total{model=\"tiny\",table=\"mid_table\"} 9\n",
        "ulfd_candidates_total{model=\"tiny\"} 200\n",
        "ulfd_candidates_per_request_bucket{model=\"tiny\",le=\"128\"} 0\n",
        "ulfd_candidates_per_request_bucket{model=\"tiny\",le=\"256\"} 1\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

// Five hundred models that nobody calls are no megabytes of zeros.
TEST_F(MetricsTest, HistogramsOfAModelBeginWithWhatTheyCount) {
  const auto series = metrics_.For(Served("tiny", 3, 1));
  EXPECT_THAT(Page(), Not(HasSubstr("ulfd_candidates_per_request_bucket")));
  EXPECT_THAT(Page(), Not(HasSubstr("ulfd_stage_duration_seconds_bucket")));
  series->model->stages[static_cast<int>(Stage::kDense)].Observe(1, 5);
  EXPECT_THAT(Page(), HasSubstr("_bucket{model=\"tiny\",stage=\"dense\""));
  EXPECT_THAT(Page(), Not(HasSubstr("_bucket{model=\"tiny\",stage=\"queue\"")));
}

TEST_F(MetricsTest, OpenMetricsHasTheTracesOfSampledCalls) {
  const auto series = metrics_.For(Served("tiny", 3, 1));
  TraceId trace{};
  trace[0] = 0xab;
  series->calls->duration.Observe(1, 75'000'000);
  series->calls->duration.Keep(75'000'000, trace);
  series->calls->duration.Observe(1, 3000'000'000);
  series->calls->duration.Keep(3000'000'000, trace);
  series->calls->codes.Add(absl::StatusCode::kOk);
  MetricPage page;
  metrics_.Collect(page);
  const std::string text = page.OpenMetricsText();
  const std::string exemplar = " # {trace_id=\"ab" + std::string(30, '0') + "\"} ";
  const std::string bucket =
      "ulfd_request_duration_seconds_bucket{model=\"tiny\",version=\"3\",le=";
  for (const std::string& line :
       {std::string("# TYPE ulfd_requests counter\n"),
        std::string("ulfd_requests_total{model=\"tiny\",version=\"3\",code=\"OK\"} 1.0\n"),
        bucket + "\"0.05\"} 0\n", bucket + "\"0.075\"} 1" + exemplar + "0.075 ",
        bucket + "\"0.1\"} 1\n", bucket + "\"+Inf\"} 2" + exemplar + "3.0 ",
        std::string("ulfd_batch_requests_bucket{le=\"1.0\"} 0\n"),
        std::string("# TYPE ulfd_inflight_requests gauge\n")}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, EndsWith("\n# EOF\n"));
  EXPECT_THAT(page.Text(), Not(HasSubstr("trace_id")));
}

TEST(MetricPage, OpenMetricsHasEachFamilyOnce) {
  MetricPage page;
  page.AddGauge("a", "of \"now\"", 2.5);
  page.AddCounter("a_total", "so far", 3);
  EXPECT_EQ(page.OpenMetricsText(),
            "# TYPE a gauge\n# HELP a of \\\"now\\\"\na 2.5\n"
            "# TYPE a_total unknown\n# HELP a_total so far\na_total 3.0\n# EOF\n");
}

TEST_F(MetricsTest, CountsBatchesAndRunsThatWereNotTiled) {
  const auto series = metrics_.For(Served("tiny", 3, 1));
  metrics_.ObserveBatch(1, 5, 60);
  metrics_.ObserveBatch(2, 1, 300);
  series->model->unproved_runs.Add();
  series->model->users_run_alone.Add(4);
  const std::string page = Page();
  for (const char* line :
       {"ulfd_batch_requests_bucket{le=\"4\"} 1\n", "ulfd_batch_requests_bucket{le=\"8\"} 2\n",
        "ulfd_batch_requests_sum 6\n", "ulfd_batch_rows_count 2\n", "ulfd_batch_rows_sum 360\n",
        "ulfd_unproved_runs_total{model=\"tiny\"} 1\n",
        "ulfd_users_run_alone_total{model=\"tiny\"} 4\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST_F(MetricsTest, CallsWithoutAModelHaveNoName) {
  metrics_.CountWithoutModel(absl::StatusCode::kNotFound);
  EXPECT_THAT(Page(),
              HasSubstr("ulfd_requests_total{model=\"\",version=\"\",code=\"NOT_FOUND\"} 1\n"));
}

TEST_F(MetricsTest, ShedAndCancelledReasonsAreAlwaysThere) {
  metrics_.CountShedWithoutModel(ShedReason::kDeadline);
  metrics_.CountCancelled(CancelStage::kCompute);
  metrics_.AddInFlight(3);
  metrics_.AddInFlight(-1);
  const std::string page = Page();
  for (const char* line :
       {"ulfd_shed_total{model=\"\",reason=\"queue_full\"} 0\n",
        "ulfd_shed_total{model=\"\",reason=\"deadline\"} 1\n",
        "ulfd_shed_total{model=\"\",reason=\"draining\"} 0\n",
        "ulfd_shed_total{model=\"\",reason=\"codel\"} 0\n",
        "ulfd_shed_total{model=\"\",reason=\"quota\"} 0\n",
        "ulfd_cancelled_total{stage=\"queue\"} 0\n", "ulfd_cancelled_total{stage=\"compute\"} 1\n",
        "ulfd_inflight_requests 2\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST_F(MetricsTest, CountsGoOnOverTheContentsOfAVersion) {
  const ServedModel first = Served("tiny", 3, 1), second = Served("tiny", 3, 2);
  metrics_.For(first)->calls->codes.Add(absl::StatusCode::kOk);
  metrics_.CountPublished(second, milliseconds(1));
  metrics_.For(second)->calls->codes.Add(absl::StatusCode::kOk);
  EXPECT_THAT(Page(),
              HasSubstr("ulfd_requests_total{model=\"tiny\",version=\"3\",code=\"OK\"} 2\n"));
  metrics_.CountUnloaded("tiny", 3, 1);  // The old content is gone, the new one serves.
  EXPECT_THAT(Page(),
              HasSubstr("ulfd_requests_total{model=\"tiny\",version=\"3\",code=\"OK\"} 2\n"));
}

TEST_F(MetricsTest, UnloadingRemovesTheSeriesForGood) {
  const ServedModel three = Served("tiny", 3, 1), four = Served("tiny", 4, 2);
  metrics_.CountPublished(three, milliseconds(1));
  metrics_.CountPublished(four, milliseconds(1));
  const auto late = metrics_.For(three);
  metrics_.CountUnloaded("tiny", 3, 1);
  EXPECT_THAT(Page(), Not(HasSubstr("version=\"3\"")));
  EXPECT_THAT(Page(), HasSubstr("version=\"4\""));
  late->calls->codes.Add(absl::StatusCode::kOk);                 // A call that was under way.
  metrics_.For(three)->calls->codes.Add(absl::StatusCode::kOk);  // One that asks late.
  EXPECT_THAT(Page(), Not(HasSubstr("version=\"3\"")));
  metrics_.CountUnloaded("tiny", 4, 2);
  EXPECT_THAT(Page(), Not(HasSubstr("tiny")));
  metrics_.CountPublished(Served("tiny", 4, 3), milliseconds(1));  // It comes back.
  EXPECT_THAT(Page(), HasSubstr("version=\"4\",code=\"OK\"} 0\n"));
}

TEST_F(MetricsTest, VersionsThatAreGoneAreForgotten) {
  for (int version = 1; version <= 3000; ++version) {
    metrics_.CountUnloaded("tiny", version, version);
  }
  metrics_.For(Served("tiny", 2500, 2500));  // One that asks late.
  EXPECT_THAT(Page(), Not(HasSubstr("tiny")));
  metrics_.For(Served("tiny", 1, 1));
  EXPECT_THAT(Page(), HasSubstr("version=\"1\""));  // Nobody knows it any more.
}

TEST_F(MetricsTest, LoadFailuresByReason) {
  metrics_.CountLoadFailed("tiny", "weights");
  metrics_.CountLoadFailed("tiny", "weights");
  EXPECT_THAT(Page(),
              HasSubstr("ulfd_model_load_failures_total{model=\"tiny\",reason=\"weights\"} 2\n"));
}

TEST_F(MetricsTest, LoadFailuresOfNamesWithoutEndAreOneSeries) {
  for (int i = 0; i < 5000; ++i) metrics_.CountLoadFailed(absl::StrCat("m", i), "graph");
  metrics_.CountLoadFailed("m0", "graph");
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("ulfd_model_load_failures_total{model=\"m0\",reason=\"graph\"} 2\n"));
  EXPECT_THAT(page,
              HasSubstr("ulfd_model_load_failures_total{model=\"\",reason=\"graph\"} 4000\n"));
  EXPECT_THAT(page, Not(HasSubstr("m1000")));
}

TEST(Histogram, AddsUpOverShardsAndThreads) {
  constexpr int64_t kBounds[] = {10, 20};
  Histogram histogram(kBounds, 1, 3);
  std::vector<std::thread> threads;
  for (int shard : {0, 1, 2, 2}) {
    threads.emplace_back([&histogram, shard] {
      for (int i = 0; i < 1000; ++i) histogram.Observe(shard, i % 30);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto out = histogram.Collect();
  EXPECT_EQ(out.sample_count, 4000u);
  int64_t low = 0, middle = 0, sum = 0;
  for (int i = 0; i < 1000; ++i) {
    low += i % 30 <= 10;
    middle += i % 30 <= 20;
    sum += i % 30;
  }
  EXPECT_EQ(out.bucket[0].cumulative_count, static_cast<uint64_t>(4 * low));
  EXPECT_EQ(out.bucket[1].cumulative_count, static_cast<uint64_t>(4 * middle));
  EXPECT_EQ(out.sample_sum, static_cast<double>(4 * sum));
}

TEST(ProcessMetrics, SaySomethingTrue) {
  std::map<std::string, double> found;
  MetricPage page;
  CollectProcessMetrics(page);
  for (const auto& family : page.families()) {
    ASSERT_EQ(family.metric.size(), 1u);
    found[family.name] = family.type == prometheus::MetricType::Counter
                             ? family.metric[0].counter.value
                             : family.metric[0].gauge.value;
  }
  EXPECT_GT(found["process_resident_memory_bytes"], 1e6);
  EXPECT_GE(found["process_virtual_memory_bytes"], found["process_resident_memory_bytes"]);
  EXPECT_GE(found["process_threads"], 1);
  EXPECT_GE(found["process_open_fds"], 3);
  EXPECT_LT(found["process_open_fds"], found["process_max_fds"]);
  EXPECT_NEAR(found["process_start_time_seconds"], static_cast<double>(time(nullptr)), 120);
  EXPECT_GE(found["process_cpu_seconds_total"], 0);
}

}  // namespace
}  // namespace ulfd::server
