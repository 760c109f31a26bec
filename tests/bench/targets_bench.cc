// The table of performance targets: work, target, what was reached.
// SPDX-License-Identifier: Apache-2.0
//
// Everything runs in this process in turns.  Slowness is reported and never an error; wrong results
// are.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "engine/kernels/isa.h"
#include "engine/tensor/fma_peak.h"
#include "engine/tensor/onednn.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/bench_models.h"
#include "tests/bench/scratch_model.h"
#include "tests/bench/targets.h"
#include "tests/testing/paths.h"

namespace ulfd::bench {
namespace {

// Where tests/bench/fetch_onnxruntime puts the library.
#if defined(__aarch64__)
constexpr char kFetchedLibrary[] = ULFD_ONNXRUNTIME "/linux/arm64/libonnxruntime.so.1";
#else
constexpr char kFetchedLibrary[] = ULFD_ONNXRUNTIME "/linux/x64/libonnxruntime.so.1";
#endif

struct Row {
  std::string name;
  std::function<absl::Status(TargetContext&, const std::string&)> measure;
  bool by_default = true;
};

std::vector<Row> Rows() {
  std::vector<Row> rows;
  const auto add_din = [&](const char* name, int64_t ads, int64_t masked, double target) {
    rows.push_back({name, [=](TargetContext& context, const std::string& row) {
                      return MeasureDin(context, row, ads, masked, target);
                    }});
  };
  const bool wide = engine::ActiveIsa() >= engine::Isa::kAvx512;
  add_din("din_200", 200, 0, wide ? 5 : 3.5);
  add_din("din_200_half", 200, kDinHistory / 2, wide ? 8 : 7);
  add_din("din_1", 1, 0, 2.5);
  rows.push_back({"tdm_dnn_200", MeasureTdm});
  rows.push_back({"user_fc_200", MeasureUserColumns});
  for (const int64_t n : {1, 16, 200, 1000}) {
    rows.push_back({absl::StrCat("mlp_", n), [n](TargetContext& context, const std::string& row) {
                      return MeasureMlp(context, row, n);
                    }});
  }
  const auto mlp = [](std::vector<int32_t> widths) {
    return [=](ScratchModel& m) { BuildMlp(m, widths, kActivation); };
  };
  // Times fp32's speed.
  const auto add_precision = [&](engine::Precision precision, double din, double mlps) {
    const auto add = [&](const char* name, const char* work,
                         std::function<void(ScratchModel&)> build, double target) {
      rows.push_back({absl::StrCat(engine::Name(precision), "_", name),
                      [=](TargetContext& context, const std::string& row) {
                        return MeasurePrecision(context, row, work, precision, build, target);
                      }});
    };
    add("din", "DIN, all history valid", BuildDin, din);
    add("mlp", "MLP 306-200-80-2", mlp({306, 200, 80, 2}), mlps);
    add("wide", "MLP 1024-512-256-128-2", mlp({1024, 512, 256, 128, 2}), mlps);
  };
  add_precision(engine::Precision::kBf16, 1.6, 1.7);
  add_precision(engine::Precision::kInt8, 1.6, 2.2);
  rows.push_back({"gemm_share", MeasureGemmShare});
  rows.push_back({"paging", MeasurePaging});
  rows.push_back({"adcache", MeasureAdCache});
  rows.push_back({"cores_2", MeasureCores});
  rows.push_back({"linear", MeasureLinear});
  rows.push_back({"lookups", MeasureLookups, /*by_default=*/false});  // 4 GB, a minute to build.
  rows.push_back({"load", MeasureLoad});
  rows.push_back({"memory", MeasureMemory});
  return rows;
}

struct Options {
  std::vector<std::string> rows;  // Empty: those measured by default.
  std::string ort, json, load;
  TurnsOptions turns;
  bool list = false, profile = false;
};

absl::string_view Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kReached:
      return "reached";
    case Verdict::kMissed:
      return "MISSED";
    case Verdict::kSkipped:
      return "skipped";
    case Verdict::kInformation:
      return "";
  }
  return "";
}

void Print(const TargetLine& line) {
  std::printf("| %s | %s | %s | %s | %s |\n", line.work.c_str(), line.target.c_str(),
              line.reached.c_str(), std::string(Name(line.verdict)).c_str(), line.detail.c_str());
  std::fflush(stdout);
}

absl::Status WriteJson(const std::string& path, const TargetContext& context, double peak,
                       double bandwidth) {
  nlohmann::json lines = nlohmann::json::array();
  for (const TargetLine& line : context.lines) {
    lines.push_back({{"row", line.row},
                     {"work", line.work},
                     {"target", line.target},
                     {"reached", line.reached},
                     {"verdict", std::string(Name(line.verdict))},
                     {"detail", line.detail},
                     {"numbers", line.numbers}});
  }
  std::ofstream file(path);
  file << nlohmann::json({{"fma_peak_gflops", peak},
                          {"read_bandwidth_gbs", bandwidth},
                          {"pairs", context.turns.turns},
                          {"lines", lines}})
              .dump(2)
       << "\n";
  file.close();
  return file ? absl::OkStatus() : absl::UnknownError(absl::StrCat(path, ": cannot be written"));
}

// The rows that --rows names; NOT_FOUND for one that does not exist.
absl::StatusOr<std::vector<Row>> Chosen(const Options& options) {
  std::vector<Row> chosen;
  for (const Row& row : Rows()) {
    if (options.rows.empty() && row.by_default) chosen.push_back(row);
  }
  for (const std::string& name : options.rows) {
    const size_t before = chosen.size();
    for (const Row& row : Rows()) {
      if (row.name == name || name == "all") chosen.push_back(row);
    }
    if (chosen.size() == before) return absl::NotFoundError(absl::StrCat("no row ", name));
  }
  return chosen;
}

// Measures the chosen rows; every row is tried, whatever became of those before it.
absl::Status MeasureAll(const Options& options, absl::Span<const Row> rows) {
  const TempDirectory scratch;
  TargetContext context{.turns = options.turns,
                        .profile = options.profile,
                        .root = testing::SourceDir(),
                        .shared = testing::SharedDir(),
                        .scratch = scratch.path(),
                        .program = std::filesystem::read_symlink("/proc/self/exe").string()};
  const std::string path = options.ort.empty() ? kFetchedLibrary : options.ort;
  const auto ort = OrtLibrary::Open(path);
  if (ort.ok()) {
    context.ort = ort->get();
    std::printf("ONNX Runtime %s, one thread, all optimisations\n", (*ort)->version().c_str());
  } else {
    if (!options.ort.empty()) return ort.status();
    context.ort_missing = "no ONNX Runtime (tests/bench/fetch_onnxruntime gets it)";
    std::printf("%s\n", context.ort_missing.c_str());
  }
  const double peak = engine::MeasureFmaPeakGflops(), bandwidth = MeasureReadBandwidthGbs();
  std::printf(
      "one thread: FMA peak %.0f GFLOP/s (%s), memory read %.1f GB/s; %d turns of %.2g s each; "
      "medians (extremes)\n\n| work | target | reached | verdict | beside it "
      "|\n|---|---|---|---|---|\n",
      peak, std::string(engine::Name(engine::ActiveIsa())).c_str(), bandwidth, options.turns.turns,
      options.turns.seconds);
  absl::Status status;
  for (const Row& row : rows) {
    const size_t before = context.lines.size();
    const absl::Status measured = row.measure(context, row.name);
    if (!measured.ok()) {
      std::fprintf(stderr, "targets_bench: row %s: %s\n", row.name.c_str(),
                   measured.ToString().c_str());
      status.Update(measured);
    }
    for (size_t i = before; i < context.lines.size(); ++i) Print(context.lines[i]);
  }
  for (const TargetLine& line : context.lines) {
    if (!line.profile.empty()) std::printf("\n%s: %s", line.work.c_str(), line.profile.c_str());
  }
  if (!options.json.empty()) {
    status.Update(WriteJson(options.json, context, peak, bandwidth));
  }
  return status;
}

int Main(int argc, char** argv) {
  engine::UseOneThread();
  Options options;
  if (const char* path = std::getenv("ULFD_ONNXRUNTIME"); path != nullptr) options.ort = path;
  FlagSet flags("targets_bench [flags]", "The table of performance targets.");
  flags.Add("rows", "Rows of the table, separated by commas, or all.", &options.rows);
  flags.Add("pairs", "Turns.", &options.turns.turns, 1);
  flags.Add("seconds", "Of each program in each pair.", &options.turns.seconds, 1e-6);
  flags.Add("ort", "The library of ONNX Runtime.", &options.ort);
  flags.Add("json", "Write the table there.", &options.json);
  flags.Add("load", "MODELDIR: only load that model, and say what it takes.", &options.load);
  flags.AddRead("backend", "auto, onednn or native.", [](const std::string& text) {
    const auto backend = engine::ParseBackend(text);
    if (backend.ok()) ScratchModel::backend = *backend;
    return backend.status();
  });
  flags.Add("profile", "Print where the time of our side goes.", &options.profile);
  flags.Add("list", "Print the names of the rows.", &options.list);
  return RunMain(argc, argv, flags, [&]() -> absl::Status {
    if (options.list) {
      for (const Row& row : Rows()) std::printf("%s\n", row.name.c_str());
      return absl::OkStatus();
    }
    if (!options.load.empty()) return PrintLoad(options.load);
    ASSIGN_OR_RETURN(const std::vector<Row> rows, Chosen(options));
    return MeasureAll(options, rows);
  });
}

}  // namespace

void Skip(TargetContext& context, const std::string& row, const std::string& work,
          const std::string& target, const std::string& why) {
  context.lines.push_back({row, work, target, "", Verdict::kSkipped, why, {}, ""});
}

std::string Format(const Spread& spread, const std::string& unit) {
  if (spread.low == spread.high) return absl::StrFormat("%.4g%s", spread.median, unit);
  return absl::StrFormat("%.4g%s (%.4g .. %.4g)", spread.median, unit, spread.low, spread.high);
}

absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& arguments) {
  const std::string command = absl::StrCat("'", absl::StrJoin(arguments, "' '"), "' 2>&1");
  std::FILE* const program = popen(command.c_str(), "re");
  if (program == nullptr) return absl::InternalError(absl::StrCat("cannot run ", arguments[0]));
  std::string output;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), program)) > 0;) {
    output.append(buffer, n);
  }
  if (pclose(program) == 0) return output;
  return absl::InternalError(absl::StrCat(
      arguments[0],
      " failed: ", output.size() > 1000 ? output.substr(output.size() - 1000) : output));
}

}  // namespace ulfd::bench

int main(int argc, char** argv) { return ulfd::bench::Main(argc, argv); }
