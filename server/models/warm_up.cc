// SPDX-License-Identifier: Apache-2.0
#include "server/models/warm_up.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "engine/directory/load_reason.h"
#include "engine/tensor/onednn.h"

namespace ulfd::server {
namespace {

// Every size of tile that kernels are prepared for, and a request of several tiles.
constexpr int64_t kWarmUpAds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 600};

bool IsFinite(const engine::Tensor& tensor) {
  if (tensor.dtype != engine::DType::kFloat32) return true;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    if (!std::isfinite(tensor.f32()[i])) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const engine::Model>> LoadAndWarmUp(
    const engine::LoadOptions& options, const engine::RunOptions& run,
    std::vector<std::string>& notices) {
  engine::UseOneThread();
  ASSIGN_OR_RETURN(std::unique_ptr<const engine::Model> model, engine::Model::Load(options));
  RETURN_IF_ERROR(WarmUp(*model, run, notices));
  return model;
}

absl::Status WarmUp(const engine::Model& model, const engine::RunOptions& run,
                    std::vector<std::string>& notices) {
  engine::UseOneThread();
  engine::Workspace workspace;
  engine::RunResult result;
  for (const int64_t ads : kWarmUpAds) {
    const absl::Status status = model.RunWarmup(ads, run, workspace, result);
    // More than any request may take; that is so however much memory is free.
    const bool too_large = absl::IsResourceExhausted(status) && LoadScope::Check().ok();
    if (too_large && ads > 1) {
      notices.push_back(absl::StrCat(
          "requests of ", ads, " ads will be refused, so will larger ones: ", status.message()));
      break;
    }
    if (!status.ok()) {
      return engine::WithLoadReason(
          absl::Status(too_large ? absl::StatusCode::kFailedPrecondition : status.code(),
                       absl::StrCat(status.message(), " (in a made-up request of ", ads,
                                    " ads before publication)")),
          engine::LoadReason::kWarmup);
    }
    if (result.outputs.empty()) {
      notices.emplace_back(
          "no made-up request was run: graph and manifest leave open what requests look like");
      break;
    }
    for (size_t i = 0; i < result.outputs.size(); ++i) {
      if (IsFinite(result.outputs[i])) continue;
      notices.push_back(absl::StrCat("output \"", model.info().outputs[i].name,
                                     "\" holds NaN or infinity for a made-up request of ", ads,
                                     " ads"));
    }
  }
  return absl::OkStatus();
}

}  // namespace ulfd::server
