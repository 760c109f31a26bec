// Requests and replies -> records.
// SPDX-License-Identifier: Apache-2.0
#include "server/recorder/call_record.h"

#include <chrono>
#include <cstring>
#include <string>
#include <utility>

namespace ulfd::server {
namespace {

using recording::v1::RecordedOutput;

template <typename T>
void AddRaw(const std::string& raw, RecordedOutput& output) {
  const size_t count = raw.size() / sizeof(T);
  output.mutable_values()->Reserve(static_cast<int>(count));
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
    output.add_values(static_cast<float>(value));
  }
}

void AddOutput(const inference::ModelInferResponse& response, int index, RecordedOutput& output) {
  const auto& tensor = response.outputs(index);
  output.set_name(tensor.name());
  *output.mutable_shape() = tensor.shape();
  if (response.raw_output_contents_size() > index) {
    const std::string& raw = response.raw_output_contents(index);
    if (tensor.datatype() == "FP32") AddRaw<float>(raw, output);
    if (tensor.datatype() == "INT32") AddRaw<int32_t>(raw, output);
    if (tensor.datatype() == "INT64") AddRaw<int64_t>(raw, output);
    return;
  }
  const auto& contents = tensor.contents();
  *output.mutable_values() = contents.fp32_contents();
  for (const int32_t value : contents.int_contents()) {
    output.add_values(static_cast<float>(value));
  }
  for (const int64_t value : contents.int64_contents()) {
    output.add_values(static_cast<float>(value));
  }
}

}  // namespace

void CallRecord::Choose(const engine::ModelInfo& info, int64_t ads) {
  if (recorder_ == nullptr || !recorder_->Choose(info.name)) return;
  record_ = std::make_unique<recording::v1::Recording>();
  record_->set_model(info.name);
  record_->set_version(info.version);
  record_->set_content_hash(info.content_hash);
  record_->set_ads(static_cast<int32_t>(ads));
}

void CallRecord::Add(const ulfd::v1::PredictRequest& request,
                     const ulfd::v1::PredictResponse& response, int64_t duration_ns) {
  if (record_ == nullptr) return;
  request.SerializeToString(record_->mutable_request());
  for (const ulfd::v1::OutputTensor& tensor : response.outputs()) {
    RecordedOutput& output = *record_->add_outputs();
    output.set_name(tensor.name());
    *output.mutable_shape() = tensor.shape();
    *output.mutable_values() = tensor.values();
  }
  *record_->mutable_indices() = response.indices();
  Finish(recording::v1::API_NATIVE, duration_ns);
}

void CallRecord::Add(const inference::ModelInferRequest& request,
                     const inference::ModelInferResponse& response, int64_t duration_ns) {
  if (record_ == nullptr) return;
  request.SerializeToString(record_->mutable_request());
  for (int i = 0; i < response.outputs_size(); ++i) {
    AddOutput(response, i, *record_->add_outputs());
  }
  Finish(recording::v1::API_KSERVE, duration_ns);
}

void CallRecord::Finish(recording::v1::Api api, int64_t duration_ns) {
  using std::chrono::duration_cast;
  record_->set_api(api);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  record_->set_received_unix_ns(duration_cast<std::chrono::nanoseconds>(now).count() - duration_ns);
  record_->set_duration_us(duration_ns / 1000);
  if (deadline_ != TimePoint::max()) {
    record_->set_timeout_us(duration_cast<std::chrono::microseconds>(deadline_ - arrival_).count());
  }
  recorder_->Add(std::move(*record_));
  record_.reset();
}

}  // namespace ulfd::server
