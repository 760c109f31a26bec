// Requests to models of ours and to ONNX files by ONNX Runtime, in turns.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "engine/tensor/onednn.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/ort.h"
#include "tests/bench/turns.h"
#include "tools/model/npz_inputs.h"

namespace ulfd::bench {
namespace {

using engine::NamedTensor;

struct Options {
  std::string programs;
  std::string ort;
  TurnsOptions turns;
};

// A model of ours and its request.
struct Ours {
  std::unique_ptr<const engine::Model> model;
  engine::NpzArrays arrays;
  std::vector<NamedTensor> inputs;
  engine::Workspace workspace;
  engine::RunResult result;

  absl::Status Run() { return model->Run(inputs, {}, workspace, result); }
};

// The same at ONNX Runtime.
struct Theirs {
  std::unique_ptr<OrtSession> session;
  engine::NpzArrays arrays;
  std::deque<std::vector<float>> values;
  std::vector<NamedTensor> outputs;
};

class Bench {
 public:
  explicit Bench(const OrtLibrary* ort) : ort_(ort) {}

  // `program`: MODELDIR@INPUTS.npz, or FILE.onnx@INPUTS.npz once there is one of the first kind.
  absl::Status Add(const std::string& program) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(program, absl::MaxSplits('@', 1));
    if (!absl::EndsWith(parts.first, ".onnx")) return AddOurs(parts.first, parts.second);
    if (ort_ == nullptr || ours_.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(program, ": want --ort, and a model of ours before it"));
    }
    return AddTheirs(parts.first, parts.second);
  }

  // Prints {"seconds": [[turns] per program], "differences": [of ONNX Runtime's outputs]}.
  absl::Status Measure(const TurnsOptions& options) {
    ASSIGN_OR_RETURN(const Turns turns, RunInTurns(contenders_, options));
    std::vector<double> differences;
    for (const Theirs& theirs : theirs_) differences.push_back(Difference(theirs));
    const nlohmann::json json = {{"seconds", turns.seconds}, {"differences", differences}};
    std::printf("%s\n", json.dump().c_str());
    return absl::OkStatus();
  }

 private:
  absl::Status AddOurs(const std::string& directory, const std::string& inputs) {
    Ours& ours = ours_.emplace_back();
    ASSIGN_OR_RETURN(ours.model, engine::Model::Load({.directory = directory}));
    ASSIGN_OR_RETURN(ours.arrays, tools::ReadInputs(inputs, ours.model->info()));
    ours.inputs = tools::InputViews(ours.model->info(), ours.arrays);
    contenders_.push_back({directory, [&ours] { return ours.Run(); }});
    return ours.Run();
  }

  absl::Status AddTheirs(const std::string& file, const std::string& inputs) {
    Theirs& theirs = theirs_.emplace_back();
    ASSIGN_OR_RETURN(theirs.session, ort_->Load(file));
    ASSIGN_OR_RETURN(theirs.arrays, engine::ReadNpz(inputs));
    std::vector<NamedTensor> views;
    for (auto& [name, array] : theirs.arrays) {
      engine::Tensor tensor;
      tensor.dtype = array.type == engine::NumberType::kInt64 ? engine::DType::kInt64
                                                              : engine::DType::kFloat32;
      tensor.dims.assign(array.dims.begin(), array.dims.end());
      tensor.data = array.bytes.data();
      views.push_back({name, tensor});
    }
    const Ours& ours = ours_.front();
    for (size_t i = 0; i < ours.result.outputs.size(); ++i) {
      engine::Tensor tensor = ours.result.outputs[i];
      tensor.data = theirs.values.emplace_back(tensor.elements()).data();
      theirs.outputs.push_back({ours.model->info().outputs[i].name, tensor});
    }
    RETURN_IF_ERROR(theirs.session->Bind(views, theirs.outputs));
    contenders_.push_back({file, [&theirs] { return theirs.session->Run(); }});
    return absl::OkStatus();
  }

  double Difference(const Theirs& theirs) const {
    double worst = 0;
    for (size_t i = 0; i < theirs.outputs.size(); ++i) {
      const engine::Tensor& ours = ours_.front().result.outputs[i];
      for (int64_t j = 0; j < ours.elements(); ++j) {
        worst = std::max(worst, std::abs(static_cast<double>(ours.f32()[j]) -
                                         theirs.outputs[i].tensor.f32()[j]));
      }
    }
    return worst;
  }

  const OrtLibrary* ort_;
  std::deque<Ours> ours_;
  std::deque<Theirs> theirs_;
  std::vector<Contender> contenders_;
};

absl::Status Measure(const Options& options) {
  std::unique_ptr<OrtLibrary> ort;
  if (!options.ort.empty()) {
    ASSIGN_OR_RETURN(ort, OrtLibrary::Open(options.ort));
  }
  Bench bench(ort.get());
  const std::vector<std::string> programs =
      absl::StrSplit(options.programs, ',', absl::SkipEmpty());
  for (const std::string& program : programs) RETURN_IF_ERROR(bench.Add(program));
  return bench.Measure(options.turns);
}

int Main(int argc, char** argv) {
  engine::UseOneThread();
  Options options{.turns = {.peak = false}};
  FlagSet flags("peer_bench --programs=MODELDIR@INPUTS.npz,FILE.onnx@INPUTS.npz,... [flags]",
                "Times requests to models of ours and to ONNX files by ONNX Runtime in turns; "
                "prints JSON.");
  flags.Add("programs", "What to time, separated by commas.", &options.programs);
  flags.Add("ort", "The library of ONNX Runtime.", &options.ort);
  flags.Add("pairs", "Turns.", &options.turns.turns, 1);
  flags.Add("seconds", "Of each program in each turn.", &options.turns.seconds, 1e-6);
  return RunMain(argc, argv, flags, [&] { return Measure(options); });
}

}  // namespace
}  // namespace ulfd::bench

int main(int argc, char** argv) { return ulfd::bench::Main(argc, argv); }
