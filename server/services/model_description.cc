// SPDX-License-Identifier: Apache-2.0
#include "server/services/model_description.h"

#include <algorithm>

#include "server/rpc/grpc_status.h"

namespace ulfd::server {
namespace {

namespace v1 = ulfd::v1;

v1::VersionState StateOf(VersionState state) {
  static constexpr v1::VersionState kStates[] = {
      v1::VERSION_STATE_WAITING, v1::VERSION_STATE_LOADING, v1::VERSION_STATE_SERVING,
      v1::VERSION_STATE_FAILED, v1::VERSION_STATE_UNLOADING};
  return kStates[static_cast<size_t>(state)];
}

v1::TensorLevel LevelOf(engine::Level level) {
  static constexpr v1::TensorLevel kLevels[] = {v1::TENSOR_LEVEL_CONSTANT, v1::TENSOR_LEVEL_USER,
                                                v1::TENSOR_LEVEL_AD, v1::TENSOR_LEVEL_UNSPECIFIED};
  return kLevels[static_cast<size_t>(level)];
}

v1::DataType TypeOf(engine::DType dtype) {
  static constexpr v1::DataType kTypes[] = {v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_INT32,
                                            v1::DATA_TYPE_INT64};
  return kTypes[static_cast<size_t>(dtype)];
}

void DescribeTensor(const std::string& name, engine::DType dtype, const engine::Shape& shape,
                    engine::Level level, v1::TensorMetadata& out) {
  out.set_name(name);
  out.set_data_type(TypeOf(dtype));
  out.set_level(LevelOf(level));
  if (!shape.ranked()) return;
  for (const engine::Dim& dim : shape.dims()) {
    const bool fixed = dim.IsConst() || dim.IsUsers();  // One user per request.
    out.add_shape(fixed ? dim.value() : -1);
  }
}

// `most`: bytes of each text.
void DescribeVersion(const VersionStatus& version, size_t most, v1::VersionStatus& out) {
  out.set_version(version.version);
  out.set_state(StateOf(version.state));
  out.set_error(ClipError(version.error, most));
  out.mutable_labels()->Add(version.labels.begin(), version.labels.end());
  out.set_serving(version.serving != nullptr);
  if (version.quarantine.has_value()) {
    v1::Quarantine& quarantine = *out.mutable_quarantine();
    quarantine.set_content_hash(version.quarantine->content_hash);
    FillTime(version.quarantine->since, *quarantine.mutable_since());
    quarantine.set_reason(ClipError(version.quarantine->error.message(), most));
  }
  if (version.serving == nullptr) return;
  const ServedModel& served = *version.serving;
  out.set_generation(served.generation);
  FillTime(served.published_at, *out.mutable_published_at());
  const engine::ModelInfo& info = served.model->info();
  out.set_memory_bytes(served.model->memory_bytes());
  out.set_epoch(info.epoch);
  if (info.epoch > 0) FillTime(info.event_time, *out.mutable_event_time());
  for (const std::string& notice : info.notices) out.add_notices(ClipError(notice, most));
  for (const engine::ShapePlanInfo& plan : served.model->shape_plans()) {
    out.add_notices(ClipError(absl::StrCat("plan for ", engine::ShapesText(plan.inputs), ": ",
                                           engine::Name(plan.state), ", ", plan.runs, " runs",
                                           plan.why_refused.empty() ? "" : ": ", plan.why_refused),
                              most));
  }
}

}  // namespace

void FillTime(std::chrono::system_clock::time_point time, google::protobuf::Timestamp& out) {
  const auto since_1970 = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_1970);
  out.set_seconds(seconds.count());
  out.set_nanos(static_cast<int32_t>(std::chrono::nanoseconds(since_1970 - seconds).count()));
}

void DescribeModels(const ModelLookup& models,
                    google::protobuf::RepeatedPtrField<v1::ModelStatus>& out) {
  const std::vector<ModelStatus> list = models.List();
  size_t versions = 1;
  for (const ModelStatus& model : list) versions += 1 + model.versions.size();
  // All together are no larger for there being thousands.
  constexpr size_t kTextBytes = size_t{1} << 20, kLeastBytes = 64;
  const size_t most = std::clamp(kTextBytes / versions, kLeastBytes, kMaxErrorBytes);
  for (const ModelStatus& model : list) {
    v1::ModelStatus& status = *out.Add();
    status.set_name(model.name);
    status.set_error(ClipError(model.error, most));
    for (const VersionStatus& version : model.versions) {
      DescribeVersion(version, most, *status.add_versions());
    }
  }
}

void DescribeModel(const ServedModel& served, const std::vector<std::string>& labels,
                   v1::GetModelMetadataResponse& out) {
  const engine::ModelInfo& info = served.model->info();
  out.mutable_model()->set_name(served.name);
  out.mutable_model()->set_version(served.version);
  out.mutable_labels()->Add(labels.begin(), labels.end());
  for (const engine::InputInfo& input : info.inputs) {
    // The parts of a sparse feature belong to whom the feature does.
    const engine::Level level =
        input.feature < 0 ? input.level : info.features[input.feature].level;
    DescribeTensor(input.name, input.dtype, input.shape, level, *out.add_inputs());
  }
  for (const engine::OutputInfo& output : info.outputs) {
    DescribeTensor(output.name, engine::DType::kFloat32, output.shape, output.level,
                   *out.add_outputs());
  }
  for (const engine::FeatureInfo& feature : info.features) {
    v1::SparseFeatureMetadata& sparse = *out.add_sparse_features();
    sparse.set_name(feature.name);
    sparse.set_level(LevelOf(feature.level));
    for (int table : feature.tables) sparse.add_tables(info.tables[table].name);
    sparse.set_max_ids_per_row(feature.max_ids_per_row);
    sparse.set_matrix(feature.matrix);
    if (feature.padding_id.has_value()) sparse.set_padding_id(*feature.padding_id);
  }
  for (const engine::MatrixInfo& matrix : info.matrices) {
    if (matrix.columns == 0) continue;
    v1::MatrixMetadata& all = *out.add_matrices();
    all.set_name(matrix.name);
    all.set_columns(matrix.columns);
    for (const engine::MatrixInfo::Part& part : matrix.parts) {
      v1::MatrixMetadata::Part& some = *all.add_parts();
      some.set_name(part.feature >= 0 ? info.features[part.feature].name
                                      : info.inputs[part.input].name);
      some.mutable_columns()->Add(part.columns.begin(), part.columns.end());
    }
  }
}

}  // namespace ulfd::server
