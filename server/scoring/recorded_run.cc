// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/recorded_run.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bounded_parse.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/tensor/element.h"
#include "proto/open_inference.pb.h"
#include "proto/predict.pb.h"
#include "server/scoring/kserve_codec.h"
#include "server/scoring/request_decoder.h"

namespace ulfd::server {
namespace {

using engine::Tensor;
using recording::v1::RecordedOutput;
using recording::v1::Recording;

// Visits one output.  Where `rows` are given and it has a row for each of the request's ads, row i
// of the record is row rows[i] of the request.
absl::Status VisitOutput(const RecordedOutput& recorded, const Tensor& found,
                         absl::Span<const int32_t> rows, int64_t ads,
                         const RecordedRun::Visit& visit) {
  std::vector<int64_t> shape(found.dims.begin(), found.dims.end());
  const bool picked = !rows.empty() && !shape.empty() && shape[0] == ads;
  if (picked) shape[0] = static_cast<int64_t>(rows.size());
  const std::vector<int64_t> wanted(recorded.shape().begin(), recorded.shape().end());
  int64_t elements = 1;
  for (const int64_t d : shape) elements *= d;
  const auto what = [&] { return absl::StrCat("output \"", recorded.name(), "\": "); };
  if (wanted != shape || recorded.values_size() != elements) {
    return FailedPrecondition(what(), "found shape ", engine::ToString(shape), ", recorded ",
                              engine::ToString(wanted), " with ", recorded.values_size(),
                              " values");
  }
  const int64_t columns = shape.empty() || shape[0] == 0 ? 1 : elements / shape[0];
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t row = picked ? rows[i / columns] : i / columns;
    if (row < 0 || row * columns >= found.elements()) {
      return FailedPrecondition(what(), "recorded row ", row, ", the request has ", ads);
    }
    RETURN_IF_ERROR(visit({.output = recorded.name(),
                           .row = row,
                           .column = i % columns,
                           .recorded = recorded.values(static_cast<int>(i)),
                           .found = engine::ElementOf(found, row * columns + i % columns)}));
  }
  return absl::OkStatus();
}

absl::Status Parse(const Recording& record, const RequestLimits& limits,
                   google::protobuf::MessageLite& request) {
  const auto bytes = static_cast<int64_t>(record.request().size());
  if (bytes > limits.max_message_bytes) {
    return InvalidArgument("the request in the record has ", bytes, " bytes, want at most ",
                           limits.max_message_bytes, " (limits.max_message_bytes)");
  }
  if (ParseBounded(record.request(), request)) return absl::OkStatus();
  return DataLoss("the request in the record cannot be parsed");
}

}  // namespace

Recording MakeRecording(recording::v1::Api api, const google::protobuf::MessageLite& request,
                        const DecodedRequest& decoded, const engine::ModelInfo& info,
                        const engine::RunResult& result) {
  Recording record;
  record.set_api(api);
  record.set_model(info.name);
  record.set_version(info.version);
  record.set_content_hash(info.content_hash);
  record.set_ads(static_cast<int32_t>(decoded.ads));
  record.set_request(request.SerializeAsString());
  for (const int index : decoded.outputs) {
    const Tensor& tensor = result.outputs[static_cast<size_t>(index)];
    RecordedOutput& output = *record.add_outputs();
    output.set_name(info.outputs[static_cast<size_t>(index)].name);
    output.mutable_shape()->Add(tensor.dims.begin(), tensor.dims.end());
    output.mutable_values()->Reserve(static_cast<int>(tensor.elements()));
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      output.add_values(static_cast<float>(engine::ElementOf(tensor, i)));
    }
  }
  return record;
}

absl::Status RecordedRun::Run(const Recording& record, const engine::Model& model,
                              const RequestLimits& limits, const engine::RunOptions& run,
                              const Visit& visit) {
  // The requests live as long as the tensors that borrow from them.
  ulfd::v1::PredictRequest native;
  inference::ModelInferRequest kserve;
  DecodedRequest decoded;
  if (record.api() == recording::v1::API_KSERVE) {
    RETURN_IF_ERROR(Parse(record, limits, kserve));
    RETURN_IF_ERROR(DecodeRequest(kserve, model, limits, decoded));
  } else {
    RETURN_IF_ERROR(Parse(record, limits, native));
    RETURN_IF_ERROR(DecodeRequest(native, model, limits, decoded));
  }
  engine::RunOptions bounded = run;
  bounded.max_memory_bytes = limits.max_memory_bytes;
  RETURN_IF_ERROR(model.Run(decoded.inputs, bounded, workspace_, result_));
  const absl::Span<const int32_t> rows(record.indices().data(),
                                       static_cast<size_t>(record.indices_size()));
  for (const RecordedOutput& output : record.outputs()) {
    const int index = model.FindOutput(output.name());
    if (index < 0) {
      return FailedPrecondition("recorded output \"", output.name(),
                                "\" is no output of the model");
    }
    RETURN_IF_ERROR(
        VisitOutput(output, result_.outputs[static_cast<size_t>(index)], rows, decoded.ads, visit));
  }
  return absl::OkStatus();
}

}  // namespace ulfd::server
