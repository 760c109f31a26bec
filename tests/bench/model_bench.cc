// Runs a loaded model under Google Benchmark.
// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/model_bench.h"

#include <benchmark/benchmark.h>

#include "engine/tensor/fma_peak.h"
#include "engine/tensor/onednn.h"
#include "tests/bench/scratch_model.h"

namespace ulfd::bench {
namespace {

void RunModel(benchmark::State& state, const engine::Model& model, const MadeUpIds& ids) {
  const int64_t ads = state.range(0);
  const MadeUpRequest request(model.info(), ads, ids.per_user, ids.table_rows);
  engine::Workspace workspace;
  engine::RunResult result;
  // The first run of a shape makes oneDNN generate code and the workspace grow.
  absl::Status status = model.Run(request.inputs(), {}, workspace, result);
  for (auto _ : state) {
    if (status.ok()) status = model.Run(request.inputs(), {}, workspace, result);
    if (!status.ok()) {
      state.SkipWithError(status.ToString().c_str());
      return;
    }
    benchmark::DoNotOptimize(result.outputs.data());
  }
  const double requests = static_cast<double>(state.iterations());
  state.counters["ads/s"] = {requests * static_cast<double>(ads), benchmark::Counter::kIsRate};
  state.counters["requests/s"] = {requests, benchmark::Counter::kIsRate};
  state.counters["peak_GFLOP/s"] = engine::MeasureFmaPeakGflops();
}

// Google Benchmark ends with 0 even if runs failed.
class Reporter : public benchmark::ConsoleReporter {
 public:
  using ConsoleReporter::ConsoleReporter;
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) failed_ = failed_ || run.error_occurred;
    ConsoleReporter::ReportRuns(runs);
  }
  bool failed() const { return failed_; }

 private:
  bool failed_ = false;
};

}  // namespace

void RegisterModel(const std::string& name, const engine::Model& model, const MadeUpIds& ids) {
  auto* bench = benchmark::RegisterBenchmark(
      name.c_str(), [&model, ids](benchmark::State& state) { RunModel(state, model, ids); });
  for (const int64_t ads : {1, 10, 50, 200, 1000}) bench->Arg(ads);
  bench->Unit(benchmark::kMicrosecond);  // Rates are per second of CPU time: one thread runs.
}

int RunAll(int argc, char** argv) {
  engine::UseOneThread();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  Reporter reporter(Reporter::OO_Defaults);
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return reporter.failed() ? 1 : 0;
}

}  // namespace ulfd::bench
