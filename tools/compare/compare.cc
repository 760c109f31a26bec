// ulf compare: golden tensors against ours, or the scores of two versions.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "engine/weights/npz.h"
#include "tools/cli/commands.h"
#include "tools/cli/print.h"
#include "tools/cli/text_table.h"
#include "tools/compare/comparison.h"
#include "tools/compare/score_set.h"
#include "tools/model/model_flags.h"

namespace ulfd::tools {
namespace {

constexpr char kDescription[] =
    R"(Compares two npz files, golden tensors (A) and ours (B, of `ulf score --dump_all`), tensor by
tensor, and names the first that differs by more than the tolerance or is missing; with --model
in the order in which the graph computes them.

With --requests, scores them with two versions of a model, and prints how far B's scores are
from A's: what another training, another precision, or tables with smaller rows do to them.

Fails where anything differs by more than the tolerance.)";

absl::Status CompareTensors(const std::string& a_path, const std::string& b_path,
                            const std::string& model_directory, double tolerance,
                            ModelFlags& model_flags) {
  ASSIGN_OR_RETURN(const engine::NpzArrays a, engine::ReadNpz(a_path));
  ASSIGN_OR_RETURN(const engine::NpzArrays b, engine::ReadNpz(b_path));
  std::vector<std::string> order;
  if (!model_directory.empty()) {
    ASSIGN_OR_RETURN(const auto model, model_flags.LoadModel(model_directory));
    for (const engine::LayerInfo& layer : model->info().layers) {
      order.insert(order.end(), layer.tops.begin(), layer.tops.end());
    }
  }
  const Comparison comparison = Compare(a, b, order, tolerance);
  Print(stdout, ToText(comparison, tolerance));
  if (comparison.first_beyond < 0) return absl::OkStatus();
  const std::string& first = comparison.tensors[comparison.first_beyond].name;
  return FailedPrecondition(Clipped(first, kMaxKeptErrorBytes), ": not within ", tolerance);
}

absl::Status CompareScores(const std::string& a_path, const std::string& b_path,
                           const ScoreFlags& flags, double tolerance, ModelFlags& model_flags) {
  engine::UseOneThread();
  ScoreSet requests(flags);
  {
    ASSIGN_OR_RETURN(const auto a, model_flags.LoadModel(a_path));
    RETURN_IF_ERROR(requests.Init(*a));
  }
  ASSIGN_OR_RETURN(const auto b, model_flags.LoadModel(b_path));
  ASSIGN_OR_RETURN(const Differences differences, requests.Measure(*b));
  TextTable table = ScoreSet::Table("scores of");
  ScoreSet::AddRow(b_path, differences, table);
  Print(stdout, absl::StrCat(requests.Size(), "\n", table.ToString()));
  if (differences.max <= tolerance) return absl::OkStatus();
  return FailedPrecondition("scores: not within ", tolerance);
}

}  // namespace

absl::Status RunCompare(Args args) {
  std::string model_directory;
  double tolerance = 1e-5;
  FlagSet flags(
      "ulf compare A.npz B.npz [--model=MODELDIR] [--tolerance=1e-5]\n"
      "       ulf compare MODELDIR_A MODELDIR_B --requests=FILE|FOLDER,... [--tolerance=1e-5]",
      kDescription);
  flags.Add("model", "Version directory whose graph gives the order of the tensors.",
            &model_directory);
  flags.Add("tolerance", "Largest |B - A| / max(1, |A|) of any element.", &tolerance, 0);
  ScoreFlags scores;
  scores.AddTo(flags);
  ModelFlags model_flags(flags);
  model_flags.AddTables(flags);
  model_flags.AddBackend(flags);
  ASSIGN_OR_RETURN(const std::vector<std::string> positional, flags.Parse(args, 2, 2));
  const bool models = flags.IsSet("requests");
  RETURN_IF_ERROR(flags.Only(models, "two models with --requests",
                             {"score", "column", "top_k", "labels", "backend", "precision"}));
  RETURN_IF_ERROR(flags.Only(!models, "two files of tensors", {"model"}));
  RETURN_IF_ERROR(
      flags.Only(models || flags.IsSet("model"), "models", {"epoch", "layer_plugins", "redis"}));
  RETURN_IF_ERROR(model_flags.redis().Check());
  std::error_code ignored;
  if (!models && std::filesystem::is_directory(positional[0], ignored)) {
    return UsageError(positional[0], " is a directory: two models want --requests");
  }
  if (models) {
    return CompareScores(positional[0], positional[1], scores, tolerance, model_flags);
  }
  return CompareTensors(positional[0], positional[1], model_directory, tolerance, model_flags);
}

}  // namespace ulfd::tools
