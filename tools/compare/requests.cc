// SPDX-License-Identifier: Apache-2.0
#include "tools/compare/requests.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "tools/cli/print.h"
#include "tools/load/recording_arrays.h"
#include "tools/load/recordings.h"
#include "tools/model/npz_inputs.h"

namespace ulfd::tools {
namespace {

absl::Status CheckFinite(const engine::NpzArrays& inputs, const engine::ModelInfo& info) {
  for (const engine::InputInfo& input : info.inputs) {
    const auto array = inputs.find(input.name);
    if (array == inputs.end() || input.dtype != engine::DType::kFloat32) continue;
    const float* values = reinterpret_cast<const float*>(array->second.bytes.data());
    const size_t count = array->second.bytes.size() / sizeof(float);
    for (size_t i = 0; i < count; ++i) {
      if (std::isfinite(values[i])) continue;
      return absl::InvalidArgumentError(absl::StrCat("input \"", input.name, "\": element ", i,
                                                     " is ", values[i], ", want finite numbers"));
    }
  }
  return absl::OkStatus();
}

class Reader {
 public:
  Reader(const std::string& labels, const engine::ModelInfo& info) : labels_(labels), info_(info) {}

  absl::Status Read(const std::string& file) {
    if (!absl::EndsWith(file, ".ulfrec")) {
      ASSIGN_OR_RETURN(engine::NpzArrays arrays, engine::ReadNpz(file));
      SavedRequest request{.source = file};
      RETURN_IF_ERROR(Annotate(TakeLabels(arrays, request.labels), file));
      return Add(std::move(request), std::move(arrays));
    }
    int64_t call = 0;
    recording::Damage damage;
    RETURN_IF_ERROR(ForEachRecording(
        {file},
        [&](recording::Recording& record) -> absl::Status {
          const std::string source = absl::StrCat(file, ", call ", ++call);
          absl::StatusOr<engine::NpzArrays> arrays = InputsOfRecording(record);
          if (!arrays.ok()) return Annotate(arrays.status(), source);
          return Add({.source = source, .top_k = record.indices_size()}, *std::move(arrays));
        },
        &damage));
    const std::string passed_over = DescribeDamage(damage);
    if (!passed_over.empty()) Print(stderr, absl::StrCat(file, ": ", passed_over, "\n"));
    return absl::OkStatus();
  }
  std::vector<SavedRequest> requests() && { return std::move(requests_); }

 private:
  absl::Status TakeLabels(engine::NpzArrays& arrays, std::vector<float>& labels) const {
    if (labels_.empty()) return absl::OkStatus();
    const auto found = arrays.find(labels_);
    if (found == arrays.end()) {
      return absl::NotFoundError(absl::StrCat("no array \"", labels_, "\" (--labels)"));
    }
    ASSIGN_OR_RETURN(const engine::NpyArray array,
                     ConvertInput(labels_, std::move(found->second), engine::DType::kFloat32));
    arrays.erase(found);
    const float* values = reinterpret_cast<const float*>(array.bytes.data());
    labels.assign(values, values + array.bytes.size() / sizeof(float));
    for (size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] == 0 || labels[i] == 1) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("array \"", labels_, "\": element ", i, " is ", labels[i], ", want 0 or 1"));
    }
    return absl::OkStatus();
  }
  absl::Status Add(SavedRequest request, engine::NpzArrays arrays) {
    absl::StatusOr<engine::NpzArrays> inputs = ConvertInputs(std::move(arrays), info_);
    if (!inputs.ok()) return Annotate(inputs.status(), request.source);
    RETURN_IF_ERROR(Annotate(CheckFinite(*inputs, info_), request.source));
    request.inputs = *std::move(inputs);
    requests_.push_back(std::move(request));
    return absl::OkStatus();
  }

  const std::string& labels_;
  const engine::ModelInfo& info_;
  std::vector<SavedRequest> requests_;
};

}  // namespace

absl::StatusOr<std::vector<SavedRequest>> ReadRequests(const std::vector<std::string>& paths,
                                                       const std::string& labels,
                                                       const engine::ModelInfo& info) {
  Reader reader(labels, info);
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(path, {".npz", ".ulfrec"}));
    for (const std::string& file : files) RETURN_IF_ERROR(reader.Read(file));
  }
  std::vector<SavedRequest> requests = std::move(reader).requests();
  if (requests.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--requests: ", requests.size(), requests.size() == 1 ? " request" : " requests",
        ", want at least 2: a single one says nothing of others"));
  }
  return requests;
}

}  // namespace ulfd::tools
