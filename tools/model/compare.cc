// ulf compare: golden tensors against ours.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/runtime/model.h"
#include "engine/weights/npz.h"
#include "tools/cli/commands.h"
#include "tools/cli/print.h"
#include "tools/model/comparison.h"
#include "tools/model/model_flags.h"

namespace ulfd::tools {

namespace {

constexpr char kDescription[] =
    "Compares two npz files, golden tensors (A) and ours (B, of `ulf score --dump_all`), tensor "
    "by\n"
    "tensor.  Fails if one is missing or differs by more than the tolerance, and names the first "
    "one\n"
    "that does; with --model in the order in which the graph computes them.";

}  // namespace

absl::Status RunCompare(Args args) {
  std::string model_directory;
  double tolerance = 1e-5;
  bool help = false;
  FlagSet flags("ulf compare A.npz B.npz [--model=MODELDIR] [--tolerance=1e-5]", kDescription);
  flags.Add("model", "Version directory whose graph gives the order of the tensors.",
            &model_directory);
  flags.Add("tolerance", "Largest |B - A| / max(1, |A|) of any element.", &tolerance, 0);
  ModelFlags model_flags(flags);
  std::vector<std::string> positional;
  RETURN_IF_ERROR(flags.Parse(args, 2, 2, &positional, &help));
  if (help) return absl::OkStatus();
  ASSIGN_OR_RETURN(const engine::NpzArrays a, engine::ReadNpz(positional[0]));
  ASSIGN_OR_RETURN(const engine::NpzArrays b, engine::ReadNpz(positional[1]));
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
  return absl::FailedPreconditionError(
      absl::StrCat(comparison.tensors[comparison.first_beyond].name, ": not within ", tolerance));
}

}  // namespace ulfd::tools
