// The table of performance targets: what its rows share.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_BENCH_TARGETS_H_
#define ULFD_TESTS_BENCH_TARGETS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/model.h"
#include "tests/bench/ort.h"
#include "tests/bench/scratch_model.h"
#include "tests/bench/turns.h"

namespace ulfd::bench {

// Of the MLPs: the one that ONNX Runtime fuses into its Gemm; with prelu it is far slower.
inline constexpr char kActivation[] = "relu_layer";

enum class Verdict : uint8_t { kReached, kMissed, kSkipped, kInformation };

// One line of the table.
struct TargetLine {
  std::string row;      // As in --rows.
  std::string work;     // What was done.
  std::string target;   // "at least 5 x"
  std::string reached;  // "1.73 x (1.60 .. 1.81)"
  Verdict verdict = Verdict::kInformation;
  std::string detail;                     // Absolute times beside it, or why it was skipped.
  std::map<std::string, double> numbers;  // The same for machines: "ratio", "ours_ms", ...
  std::string profile;                    // Of our side, with TargetContext::profile.
};

// What a row may use, and where it puts its lines.
struct TargetContext {
  TurnsOptions turns;
  bool profile = false;
  const OrtLibrary* ort = nullptr;  // nullptr: not there; the reason is in ort_missing.
  std::string ort_missing;
  std::string root;     // Of the sources.
  std::string shared;   // Folder with models/; may not exist.
  std::string scratch;  // An existing empty folder.
  std::string program;  // This program, to be started again.
  std::vector<TargetLine> lines;
};

// Each adds its lines to the context.  An error means wrong results or a broken set-up, never
// slowness.
absl::Status MeasureDin(TargetContext& context, const std::string& row, int64_t ads, int64_t masked,
                        double target);
absl::Status MeasureMlp(TargetContext& context, const std::string& row, int64_t rows);
absl::Status MeasureUserColumns(TargetContext& context, const std::string& row);
absl::Status MeasureTdm(TargetContext& context, const std::string& row);
absl::Status MeasureGemmShare(TargetContext& context, const std::string& row);
// A model of ours in a low precision beside itself in fp32.
absl::Status MeasurePrecision(TargetContext& context, const std::string& row,
                              const std::string& work, engine::Precision precision,
                              const std::function<void(ScratchModel&)>& build, double target);
absl::Status MeasureAdCache(TargetContext& context, const std::string& row);
absl::Status MeasurePaging(TargetContext& context, const std::string& row);
absl::Status MeasureCores(TargetContext& context, const std::string& row);
absl::Status MeasureLinear(TargetContext& context, const std::string& row);
absl::Status MeasureLookups(TargetContext& context, const std::string& row);
absl::Status MeasureLoad(TargetContext& context, const std::string& row);
absl::Status MeasureMemory(TargetContext& context, const std::string& row);

// A line for a row that cannot be measured here.
void Skip(TargetContext& context, const std::string& row, const std::string& work,
          const std::string& target, const std::string& why);

// Sets line.profile if the context asks for profiles.
absl::Status AddProfile(const TargetContext& context, const engine::Model& model,
                        absl::Span<const engine::NamedTensor> inputs, int64_t ads,
                        TargetLine& line);

// Loads `directory` and prints one line of JSON: {"load_ms": ..., "rss_delta_bytes": ..., ...};
// MeasureLoad and MeasureMemory run it in a process of its own.
absl::Status PrintLoad(const std::string& directory);

// "1.73 x (1.60 .. 1.81)"
std::string Format(const Spread& spread, const std::string& unit);

// Runs a program and returns what it printed.  INTERNAL with its exit code and its last words if it
// fails.
absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& arguments);

}  // namespace ulfd::bench

#endif  // ULFD_TESTS_BENCH_TARGETS_H_
