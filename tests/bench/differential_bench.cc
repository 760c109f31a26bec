// The optimised plan against the graph as written, over random graphs: a rewrite must never make a
// request slower.
// SPDX-License-Identifier: Apache-2.0
//
// Graphs come from random_model.h or, with --cases, from a file that tests/make_random_graphs.py
// wrote.  Prints how the ratios optimised / written are spread and the worst of them, measured
// again at length, with the passes that changed those graphs.  Ends with 1 if outputs differ, never
// because of a ratio.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/random_model.h"
#include "tests/bench/scratch_model.h"
#include "tests/bench/turns.h"
#include "tests/testing/graph_case.h"

namespace ulfd::bench {
namespace {

constexpr double kTolerance = 1e-5;  // Of the largest magnitude of an output, at least of 1.

struct Options {
  int graphs = 200, seed = 1, ads = 200, worst = 5;
  std::string cases;
  TurnsOptions turns{.turns = 7, .seconds = 0.004, .peak = false};
};

// One graph with one request.
struct Subject {
  std::string name;
  std::unique_ptr<const engine::Model> model;
  std::unique_ptr<MadeUpRequest> made_up;
  std::unique_ptr<testing::CaseInputs> given;
  Spread ratio;
  double written_us = 0, optimised_us = 0;

  absl::Span<const engine::NamedTensor> inputs() const {
    return made_up != nullptr ? made_up->inputs() : given->tensors();
  }
};

bool Finite(const engine::Tensor& tensor) {
  return std::all_of(tensor.f32(), tensor.f32() + tensor.elements(),
                     [](float value) { return std::isfinite(value); });
}

// The largest difference relative to the largest magnitude; infinity for different shapes.
double Difference(const engine::Tensor& a, const std::vector<float>& b) {
  if (a.elements() != static_cast<int64_t>(b.size())) return INFINITY;
  double difference = 0, magnitude = 1;
  for (size_t i = 0; i < b.size(); ++i) {
    difference = std::max<double>(difference, std::abs(a.f32()[i] - b[i]));
    magnitude = std::max<double>(magnitude, std::abs(b[i]));
  }
  return difference / magnitude;
}

// Whether the optimised plan runs for this request.  INTERNAL if its outputs are not those of the
// graph as written.
absl::StatusOr<bool> Compare(const Subject& subject) {
  engine::Workspace workspace;
  engine::RunResult result;
  RETURN_IF_ERROR(subject.model->Run(subject.inputs(), {.reference = true}, workspace, result));
  std::vector<std::vector<float>> written;
  for (const engine::Tensor& output : result.outputs) {
    if (!Finite(output)) return false;  // Nothing to compare.
    written.emplace_back(output.f32(), output.f32() + output.elements());
  }
  RETURN_IF_ERROR(subject.model->Run(subject.inputs(), {}, workspace, result));
  for (size_t o = 0; o < written.size(); ++o) {
    const double difference = Difference(result.outputs[o], written[o]);
    if (difference <= kTolerance) continue;
    return absl::InternalError(
        absl::StrCat(subject.name, ": output \"", subject.model->info().outputs[o].name,
                     "\" differs by ", difference, " of its magnitude from the graph as written"));
  }
  return result.stats.optimised;
}

absl::Status Measure(Subject& subject, const TurnsOptions& options) {
  engine::Workspace written, optimised;
  engine::RunResult written_result, optimised_result;
  const Contender contenders[] = {
      {"written",
       [&] {
         return subject.model->Run(subject.inputs(), {.reference = true}, written, written_result);
       }},
      {"optimised",
       [&] { return subject.model->Run(subject.inputs(), {}, optimised, optimised_result); }}};
  ASSIGN_OR_RETURN(const Turns turns, RunInTurns(contenders, options));
  subject.ratio = SpreadOf(Ratios(turns.seconds[1], turns.seconds[0]));
  subject.written_us = SpreadOf(turns.seconds[0]).median * 1e6;
  subject.optimised_us = SpreadOf(turns.seconds[1]).median * 1e6;
  return absl::OkStatus();
}

// Which passes changed the graph.
std::string Passes(const engine::Model& model) {
  std::set<std::string> passes;
  for (const auto& rewrite : model.info().rewrites) passes.emplace(rewrite.pass);
  return absl::StrJoin(passes, ", ");
}

absl::StatusOr<std::vector<Subject>> MadeUpSubjects(const Options& options,
                                                    const std::string& scratch) {
  std::vector<Subject> subjects;
  for (int i = 0; i < options.graphs; ++i) {
    Subject& subject = subjects.emplace_back();
    subject.name = absl::StrCat("seed ", options.seed + i);
    ScratchModel scratch_model;
    BuildRandomModel(scratch_model, static_cast<uint32_t>(options.seed + i));
    auto model = scratch_model.Load(absl::StrCat(scratch, "/", options.seed + i, "/1"));
    if (!model.ok()) {
      return absl::InternalError(absl::StrCat(subject.name, ": ", model.status().ToString()));
    }
    subject.model = *std::move(model);
    subject.made_up = std::make_unique<MadeUpRequest>(subject.model->info(), options.ads, 1, 1);
  }
  return subjects;
}

absl::StatusOr<std::vector<Subject>> CaseSubjects(const Options& options,
                                                  const std::string& scratch) {
  std::vector<Subject> subjects;
  for (const testing::GraphCase& graph_case : testing::ReadGraphCases(options.cases)) {
    Subject& subject = subjects.emplace_back();
    subject.name = graph_case.name;
    ASSIGN_OR_RETURN(
        subject.model,
        engine::Model::Load({.directory = testing::WriteModelDirectory(graph_case, scratch)}));
    subject.given = std::make_unique<testing::CaseInputs>(graph_case.inputs);
  }
  return subjects;
}

void PrintSpread(const std::vector<Subject*>& measured, size_t all) {
  std::vector<double> ratios;
  double written = 0, optimised = 0;
  int slower = 0;
  for (const Subject* subject : measured) {
    ratios.push_back(subject->ratio.median);
    written += std::log(subject->written_us);
    optimised += std::log(subject->optimised_us);
    if (subject->ratio.median > 1.02) ++slower;
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf(
      "%zu graphs, %zu run by the optimised plan; time optimised / written: geometric mean %.3f, "
      "median "
      "%.3f, best %.3f, worst %.3f; %d over 1.02\n",
      all, measured.size(), std::exp((optimised - written) / static_cast<double>(measured.size())),
      ratios[ratios.size() / 2], ratios.front(), ratios.back(), slower);
}

// Measures the worst again, since the worst of many noisy figures is mostly noise, and prints them.
absl::Status PrintWorst(std::vector<Subject*> measured, const Options& options) {
  const auto by_ratio = [](const Subject* a, const Subject* b) {
    return a->ratio.median > b->ratio.median;
  };
  std::sort(measured.begin(), measured.end(), by_ratio);
  measured.resize(std::min<size_t>(measured.size(), 4 * options.worst));
  TurnsOptions longer = options.turns;
  longer.turns = 3 * longer.turns;
  for (Subject* subject : measured) RETURN_IF_ERROR(Measure(*subject, longer));
  std::sort(measured.begin(), measured.end(), by_ratio);
  measured.resize(std::min<size_t>(measured.size(), options.worst));
  std::printf(
      "\n| graph | optimised / written | written | optimised | passes |\n|---|---|---|---|---|\n");
  for (const Subject* subject : measured) {
    std::printf("| %s | %.3f (%.3f .. %.3f) | %.1f us | %.1f us | %s |\n", subject->name.c_str(),
                subject->ratio.median, subject->ratio.low, subject->ratio.high, subject->written_us,
                subject->optimised_us, Passes(*subject->model).c_str());
  }
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  const TempDirectory scratch;
  ASSIGN_OR_RETURN(std::vector<Subject> subjects, options.cases.empty()
                                                      ? MadeUpSubjects(options, scratch.path())
                                                      : CaseSubjects(options, scratch.path()));
  std::vector<Subject*> measured;
  absl::Status status;
  for (Subject& subject : subjects) {
    const absl::StatusOr<bool> optimised = Compare(subject);
    if (!optimised.ok()) {
      std::fprintf(stderr, "differential_bench: %s\n", optimised.status().ToString().c_str());
      status.Update(optimised.status());
      continue;
    }
    if (!*optimised) continue;
    RETURN_IF_ERROR(Measure(subject, options.turns));
    measured.push_back(&subject);
  }
  if (measured.empty()) {
    std::printf("%zu graphs, none is run by an optimised plan\n", subjects.size());
    return status;
  }
  PrintSpread(measured, subjects.size());
  RETURN_IF_ERROR(PrintWorst(measured, options));
  return status;
}

int Main(int argc, char** argv) {
  engine::UseOneThread();
  Options options;
  FlagSet flags("differential_bench [flags]",
                "The optimised plan against the graph as written, over random graphs.");
  flags.Add("graphs", "How many.", &options.graphs, 1);
  flags.Add("seed", "Of the random numbers.", &options.seed, 1);
  flags.Add("ads", "Ads of a request.", &options.ads, 1);
  flags.Add("worst", "How many of the worst are measured again and printed.", &options.worst, 1);
  flags.Add("pairs", "Turns.", &options.turns.turns, 1);
  flags.Add("seconds", "Of each plan in each pair.", &options.turns.seconds, 1e-9);
  flags.AddRead("cases", "FILE that tests/make_random_graphs.py wrote: its graphs.",
                [&](const std::string& path) {
                  options.cases = path;
                  return std::filesystem::exists(path) ? absl::OkStatus()
                                                       : absl::NotFoundError("no file " + path);
                });
  return RunMain(argc, argv, flags, [&] { return Run(options); });
}

}  // namespace
}  // namespace ulfd::bench

int main(int argc, char** argv) { return ulfd::bench::Main(argc, argv); }
