// SPDX-License-Identifier: Apache-2.0
#include "tools/load/request_source.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "proto/open_inference.pb.h"
#include "proto/predict.pb.h"
#include "tools/client/clients.h"
#include "tools/load/random_requests.h"
#include "tools/load/recordings.h"

namespace ulfd::tools {
namespace {

using ulfd::v1::PredictRequest;

// Beyond that a pool stops growing.
constexpr int64_t kMaxPoolBytes = int64_t{512} << 20;

LoadRequest Serialised(LoadApi api, const google::protobuf::MessageLite& message, int64_t ads) {
  LoadRequest request{.api = api, .ads = ads};
  const std::string bytes = message.SerializeAsString();
  request.bytes = static_cast<int64_t>(bytes.size());
  const grpc::Slice slice(bytes);
  request.message = grpc::ByteBuffer(&slice, 1);
  return request;
}

ulfd::v1::ModelSpec SpecOf(const LoadOptions& o) {
  return tools::SpecOf(o.model, o.version, o.label);
}

// What the command line says wins over what the request says.
void SetModel(const LoadOptions& o, PredictRequest& request) {
  request.mutable_model()->MergeFrom(SpecOf(o));
  if (!o.outputs.empty()) *request.mutable_outputs() = {o.outputs.begin(), o.outputs.end()};
  if (o.top_k > 0) request.mutable_top_k()->set_k(o.top_k);
}

void SetModel(const LoadOptions& o, inference::ModelInferRequest& request) {
  if (!o.model.empty()) request.set_model_name(o.model);
  if (o.version != 0) request.set_model_version(absl::StrCat(o.version));
  if (!o.outputs.empty()) request.clear_outputs();
  for (const std::string& output : o.outputs) request.add_outputs()->set_name(output);
}

absl::StatusOr<AdCounts> AdsFor(const LoadOptions& o) {
  if (o.ads_from.empty()) return AdCounts::Parse(o.ads);
  ASSIGN_OR_RETURN(const std::vector<std::string> files, RecordingFiles(o.ads_from));
  std::vector<int64_t> counts;
  recording::Damage damage;
  RETURN_IF_ERROR(ForEachRecording(
      files,
      [&](recording::Recording& record) {
        if (record.ads() < 1) return absl::OkStatus();
        if (o.model.empty() || record.model() == o.model) counts.push_back(record.ads());
        return absl::OkStatus();
      },
      &damage));
  if (counts.empty()) {
    return NotFound(o.ads_from, ": holds no call of model \"", o.model, "\"");
  }
  return AdCounts::Empirical(std::move(counts));
}

absl::StatusOr<ModelInputs> AskForInputs(const LoadOptions& o, const Connection& server) {
  if (o.api == LoadApi::kNative) {
    ASSIGN_OR_RETURN(const auto metadata, CallGetModelMetadata(server, SpecOf(o), o.timeout));
    return InputsOf(metadata, o.shapes);
  }
  ASSIGN_OR_RETURN(const auto metadata, CallModelMetadata(server, o.model, o.version, o.timeout));
  return InputsOf(metadata, o.shapes);
}

// The recorded call, with what the command line says.
template <typename Message>
absl::StatusOr<LoadRequest> Recorded(const LoadOptions& o, LoadApi api, absl::string_view name,
                                     const recording::Recording& record) {
  Message message;
  if (!message.ParseFromString(record.request())) {
    return DataLoss("a record holds no ", name);
  }
  SetModel(o, message);
  LoadRequest request = Serialised(api, message, record.ads());
  if (!o.timeout_given) request.timeout_us = record.timeout_us();
  return request;
}

absl::StatusOr<LoadRequest> FromRecord(const LoadOptions& o, const recording::Recording& record) {
  if (record.api() == recording::v1::API_NATIVE) {
    return Recorded<PredictRequest>(o, LoadApi::kNative, "PredictRequest", record);
  }
  return Recorded<inference::ModelInferRequest>(o, LoadApi::kKserve, "ModelInferRequest", record);
}

}  // namespace

const char* MethodOf(LoadApi api) {
  return api == LoadApi::kNative ? "/ulfd.v1.PredictionService/Predict"
                                 : "/inference.GRPCInferenceService/ModelInfer";
}

absl::Status RequestSource::MakeRandom(const LoadOptions& o, const Connection& server) {
  ASSIGN_OR_RETURN(ModelInputs inputs, AskForInputs(o, server));
  RandomRequestOptions random = o.random;
  ASSIGN_OR_RETURN(random.ads, AdsFor(o));
  const auto maker = std::make_shared<const RandomRequests>(std::move(inputs), std::move(random));
  RETURN_IF_ERROR(maker->CheckFeatureNames());
  RETURN_IF_ERROR(maker->CheckSize());
  make_ = [o, maker](uint64_t number) {
    const RequestChoice choice = maker->Choose(number);
    if (o.api == LoadApi::kNative) {
      PredictRequest request;
      SetModel(o, request);
      maker->Fill(choice, request);
      return Serialised(o.api, request, choice.ads);
    }
    inference::ModelInferRequest request;
    SetModel(o, request);
    maker->Fill(choice, request);
    return Serialised(o.api, request, choice.ads);
  };
  int64_t bytes = 0;
  constexpr int64_t kSample = 20;
  std::vector<LoadRequest> made;
  while (static_cast<int64_t>(made.size()) < (o.pool > 0 ? o.pool : kSample) &&
         bytes < kMaxPoolBytes) {
    made.push_back(make_(made.size()));
    bytes += made.back().bytes;
  }
  mean_bytes_ = static_cast<double>(bytes) / static_cast<double>(made.size());
  if (o.pool > 0) pool_ = std::move(made);
  model_ = o.model;
  return absl::OkStatus();
}

absl::Status RequestSource::MakeFromArrays(const LoadOptions& o, const Connection& server) {
  ASSIGN_OR_RETURN(const engine::NpzArrays arrays, engine::ReadNpz(o.inputs));
  model_ = o.model;
  if (o.api == LoadApi::kNative) {
    ASSIGN_OR_RETURN(const auto metadata, CallGetModelMetadata(server, SpecOf(o), o.timeout));
    ASSIGN_OR_RETURN(PredictRequest request, RequestFromArrays(arrays, metadata));
    SetModel(o, request);
    pool_.push_back(Serialised(o.api, request, AdsOfRequest(arrays, metadata)));
  } else {
    ASSIGN_OR_RETURN(const auto metadata, CallModelMetadata(server, o.model, o.version, o.timeout));
    ASSIGN_OR_RETURN(auto request, InferRequestFromArrays(arrays, metadata));
    SetModel(o, request);
    int64_t ads = 1;
    for (const auto& tensor : request.inputs()) {
      if (tensor.shape_size() > 0) ads = std::max(ads, tensor.shape(0));
    }
    pool_.push_back(Serialised(o.api, request, ads));
  }
  mean_bytes_ = static_cast<double>(pool_[0].bytes);
  return absl::OkStatus();
}

absl::Status RequestSource::MakeFromRecording(const LoadOptions& o, const Connection& server) {
  ASSIGN_OR_RETURN(const std::vector<std::string> files, RecordingFiles(o.replay));
  recording::Damage damage;
  std::set<std::string> models;
  std::vector<std::pair<int64_t, LoadRequest>> requests;
  int64_t bytes = 0;
  bool all = true;
  const auto add = [&](const recording::Recording& record) -> absl::Status {
    all = bytes < kMaxPoolBytes;
    if (!all) return absl::OkStatus();
    ASSIGN_OR_RETURN(LoadRequest request, FromRecord(o, record));
    models.insert(o.model.empty() ? record.model() : o.model);
    bytes += request.bytes;
    requests.emplace_back(record.received_unix_ns(), std::move(request));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachRecording(files, add, &damage));
  if (requests.empty()) {
    return NotFound(o.replay, ": holds no recorded call");
  }
  // Calls are recorded when they end, and files of several models follow one another.
  std::stable_sort(requests.begin(), requests.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [time, request] : requests) {
    times_.push_back(time);
    pool_.push_back(std::move(request));
  }
  mean_bytes_ = static_cast<double>(bytes) / static_cast<double>(pool_.size());
  notice_ = DescribeDamage(damage);
  if (!all) {
    absl::StrAppend(&notice_, notice_.empty() ? "" : "; ", "only the first ", pool_.size(),
                    " calls are replayed: they fill ", kMaxPoolBytes >> 20, " MiB");
  }
  model_ = *models.begin();
  if (models.size() > 1) absl::StrAppend(&model_, " and ", models.size() - 1, " more");
  // Whether the server is there and has the model is better said before the load than by it.
  LoadOptions first = o;
  first.model = *models.begin();
  first.api = pool_[0].api;
  if (first.api == LoadApi::kNative) {
    return CallGetModelMetadata(server, SpecOf(first), o.timeout).status();
  }
  return CallModelMetadata(server, first.model, first.version, o.timeout).status();
}

absl::StatusOr<std::unique_ptr<RequestSource>> RequestSource::Create(const LoadOptions& options,
                                                                     const Connection& server) {
  auto source = std::unique_ptr<RequestSource>(new RequestSource);
  if (!options.replay.empty()) {
    RETURN_IF_ERROR(source->MakeFromRecording(options, server));
  } else if (!options.inputs.empty()) {
    RETURN_IF_ERROR(source->MakeFromArrays(options, server));
  } else {
    RETURN_IF_ERROR(source->MakeRandom(options, server));
  }
  return source;
}

LoadRequest RequestSource::Get(uint64_t number) const {
  return pool_.empty() ? make_(number) : pool_[number % pool_.size()];
}

}  // namespace ulfd::tools
