// SPDX-License-Identifier: Apache-2.0
#include "server/services/kserve_models.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/rpc/grpc_status.h"
#include "server/scoring/kserve_codec.h"

namespace ulfd::server {
namespace {

inference::DataType TypeOf(const std::string& datatype) {
  inference::DataType type = inference::TYPE_INVALID;
  inference::DataType_Parse(absl::StrCat("TYPE_", datatype), &type);
  return type;
}

void Fill(const Histogram& times, inference::StatisticDuration& out) {
  const auto all = times.Collect();
  out.set_count(all.sample_count);
  out.set_ns(static_cast<uint64_t>(all.sample_sum));
}

void Fill(const ServedModel& served, const CallSeries& calls, inference::ModelStatistics& out) {
  out.set_name(served.name);
  out.set_version(absl::StrCat(served.version));
  out.set_last_inference(static_cast<uint64_t>(calls.last_ms.load(std::memory_order_relaxed)));
  out.set_execution_count(static_cast<uint64_t>(calls.runs.value()));
  inference::InferStatistics& all = *out.mutable_inference_stats();
  const auto success = calls.duration.Collect();  // In seconds.
  all.mutable_success()->set_count(success.sample_count);
  all.mutable_success()->set_ns(static_cast<uint64_t>(success.sample_sum * 1e9));
  out.set_inference_count(success.sample_count);
  int64_t failed = 0;
  for (const Counter& code : calls.codes.counts()) failed += code.value();
  failed -= calls.codes.counts()[static_cast<size_t>(absl::StatusCode::kOk)].value();
  all.mutable_fail()->set_count(static_cast<uint64_t>(failed));
  all.mutable_fail()->set_ns(static_cast<uint64_t>(calls.failed_ns.value()));
  Fill(calls.queue, *all.mutable_queue());
  Fill(calls.input, *all.mutable_compute_input());
  Fill(calls.infer, *all.mutable_compute_infer());
  Fill(calls.output, *all.mutable_compute_output());
}

const char* StateOf(const VersionStatus& version) {
  if (version.serving != nullptr) return "READY";
  if (version.state == VersionState::kLoading) return "LOADING";
  if (version.state == VersionState::kUnloading) return "UNLOADING";
  return "UNAVAILABLE";
}

bool MayUse(const ModelLookup& models, const ModelChoice& caller, const std::string& name) {
  ModelChoice choice = caller;
  choice.name = name;
  return models.CheckAccess(choice).ok();
}

}  // namespace

void DescribeServed(const engine::ModelInfo& info, const std::vector<int64_t>& versions,
                    inference::ModelMetadataResponse& out) {
  DescribeModel(info, out);
  for (const int64_t version : versions) out.add_versions(absl::StrCat(version));
}

void DescribeConfig(const engine::ModelInfo& info, inference::ModelConfig& out) {
  inference::ModelMetadataResponse metadata;
  DescribeModel(info, metadata);
  out.set_name(metadata.name());
  out.set_platform(metadata.platform());
  out.set_backend(metadata.platform());
  for (size_t i = 0; i < info.inputs.size(); ++i) {
    const auto& from = metadata.inputs(static_cast<int>(i));
    inference::ModelInput& input = *out.add_input();
    input.set_name(from.name());
    input.set_data_type(TypeOf(from.datatype()));
    *input.mutable_dims() = from.shape();
    const int feature = info.inputs[i].feature;
    const bool not_ids = feature >= 0 && info.features[feature].ids != static_cast<int>(i);
    input.set_optional(not_ids || !info.inputs[i].used);
  }
  for (const auto& from : metadata.outputs()) {
    inference::ModelOutput& output = *out.add_output();
    output.set_name(from.name());
    output.set_data_type(TypeOf(from.datatype()));
    *output.mutable_dims() = from.shape();
  }
}

void CollectStatistics(const ModelLookup& models, Metrics& metrics, const ModelChoice& wanted,
                       inference::ModelStatisticsResponse& out) {
  for (const ModelStatus& model : models.List(wanted.name)) {
    if (!MayUse(models, wanted, model.name)) continue;
    for (const VersionStatus& version : model.versions) {
      if (version.serving == nullptr) continue;
      if (wanted.version.has_value() && version.version != *wanted.version) continue;
      Fill(*version.serving, *metrics.For(*version.serving)->calls, *out.add_model_stats());
    }
  }
}

void ListRepository(const ModelLookup& models, const ModelChoice& caller, bool only_ready,
                    inference::RepositoryIndexResponse& out) {
  for (const ModelStatus& model : models.List()) {
    if (!MayUse(models, caller, model.name)) continue;
    for (const VersionStatus& version : model.versions) {
      if (only_ready && version.serving == nullptr) continue;
      auto& index = *out.add_models();
      index.set_name(model.name);
      index.set_version(absl::StrCat(version.version));
      index.set_state(StateOf(version));
      if (version.serving == nullptr) index.set_reason(ClipError(version.error));
    }
    if (!model.versions.empty() || only_ready) continue;
    auto& index = *out.add_models();
    index.set_name(model.name);
    index.set_state("UNAVAILABLE");
    index.set_reason(ClipError(model.error));
  }
}

}  // namespace ulfd::server
