// ulf score: scores the inputs of an npz file offline, with the engine of the daemon.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "tools/cli/commands.h"
#include "tools/cli/print.h"
#include "tools/cli/text_table.h"
#include "tools/model/model_flags.h"
#include "tools/model/npz_inputs.h"

namespace ulfd::tools {
namespace {

using engine::DType;
using engine::NpyArray;
using engine::Tensor;

constexpr char kDescription[] =
    R"(Loads the model in MODELDIR (a version directory, such as models/din/1) with its deltas, runs
it on the arrays of --inputs, which are named like the graph's inputs ("mid.ids", "mask";
"/" is written as %2F), and prints the shape and first values of every output.)";

// Calls add(tensor's elements as T) with the element type of the tensor.
template <typename F>
auto WithElements(const Tensor& tensor, F use) {
  switch (tensor.dtype) {
    case DType::kInt32:
      return use(tensor.i32());
    case DType::kInt64:
      return use(tensor.i64());
    case DType::kFloat32:
      break;
  }
  return use(tensor.f32());
}

NpyArray ToArray(const Tensor& tensor) {
  std::vector<int64_t> dims(tensor.dims.begin(), tensor.dims.end());
  switch (tensor.dtype) {
    case DType::kInt32:
      return NpyArray::FromInt32(std::move(dims), tensor.i32());
    case DType::kInt64:
      return NpyArray::FromInt64(std::move(dims), tensor.i64());
    case DType::kFloat32:
      break;
  }
  return NpyArray::FromFloat32(std::move(dims), tensor.f32());
}

std::string FirstValues(const Tensor& tensor) {
  const int64_t shown = std::min<int64_t>(tensor.elements(), 4);
  return WithElements(tensor, [&](const auto* data) {
    return absl::StrCat(absl::StrJoin(data, data + shown, "  "),
                        shown < tensor.elements() ? "  ..." : "");
  });
}

void PrintResult(const engine::ModelInfo& info, const engine::RunResult& result) {
  TextTable table({"output", "shape", "first values"});
  for (size_t i = 0; i < info.outputs.size(); ++i) {
    const Tensor& tensor = result.outputs[i];
    table.AddRow({info.outputs[i].name, engine::ToString(tensor.dims), FirstValues(tensor)});
  }
  std::string text =
      absl::StrCat("model ", info.name, ", version ", info.version, "\n", table.ToString());
  for (size_t i = 0; i < info.tables.size() && i < result.stats.missing_ids.size(); ++i) {
    if (result.stats.missing_ids[i] == 0) continue;
    absl::StrAppend(&text, "  ids that table ", info.tables[i].name,
                    " lacks: ", result.stats.missing_ids[i], "\n");
  }
  Print(stdout, text);
}

absl::Status Save(const engine::ModelInfo& info, const engine::RunResult& result,
                  const std::string& path) {
  engine::NpzArrays arrays;
  for (const engine::NamedTensor& named : result.tensors) {
    arrays[std::string(named.name)] = ToArray(named.tensor);
  }
  for (size_t i = 0; i < info.outputs.size(); ++i) {
    arrays[info.outputs[i].name] = ToArray(result.outputs[i]);
  }
  return engine::WriteNpz(path, arrays);
}

}  // namespace

absl::Status RunScore(Args args) {
  std::string inputs, outputs;
  bool dump_all = false;
  FlagSet flags("ulf score MODELDIR --inputs=FILE.npz [--outputs=FILE.npz] [--dump_all]",
                kDescription);
  flags.Add("inputs", "npz file with one array per graph input.", &inputs);
  flags.Add("outputs", "npz file to write the outputs to.", &outputs);
  flags.Add("dump_all", "Writes every tensor of the graph to --outputs, not only its outputs.",
            &dump_all);
  ModelFlags model_flags(flags);
  model_flags.AddTables(flags);
  model_flags.AddBackend(flags);
  ASSIGN_OR_RETURN(const std::vector<std::string> positional, flags.Parse(args, 1, 1));
  if (inputs.empty()) return UsageError("--inputs is needed");
  if (dump_all && outputs.empty()) return UsageError("--dump_all wants --outputs");

  engine::UseOneThread();
  ASSIGN_OR_RETURN(const auto model, model_flags.LoadModel(positional[0]));
  ASSIGN_OR_RETURN(engine::NpzArrays arrays, ReadInputs(inputs, model->info()));
  engine::Workspace workspace;
  engine::RunResult result;
  const std::vector<engine::NamedTensor> views = InputViews(model->info(), arrays);
  RETURN_IF_ERROR(model->Run(views, {.keep_all = dump_all}, workspace, result));
  // As the daemon scores every further request of these shapes.
  if (!model->MakePlans({}, INT64_MAX).empty()) {
    RETURN_IF_ERROR(model->Run(views, {}, workspace, result));
  }
  PrintResult(model->info(), result);
  return outputs.empty() ? absl::OkStatus() : Save(model->info(), result, outputs);
}

}  // namespace ulfd::tools
