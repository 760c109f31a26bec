// SPDX-License-Identifier: Apache-2.0
#include "server/recorder/call_record.h"

#include <chrono>
#include <cstring>
#include <string>
#include <utility>

namespace ulfd::server {
namespace {

using recording::v1::RecordedOutput;
using recording::v1::Recording;

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

Recording Describe(const AnsweredCall& call) {
  using std::chrono::duration_cast;
  Recording record;
  record.set_model(call.info.name);
  record.set_version(call.info.version);
  record.set_content_hash(call.info.content_hash);
  record.set_ads(static_cast<int32_t>(call.ads));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  record.set_received_unix_ns(duration_cast<std::chrono::nanoseconds>(now).count() -
                              call.duration_ns);
  record.set_duration_us(call.duration_ns / 1000);
  if (call.deadline != TimePoint::max()) {
    record.set_timeout_us(
        duration_cast<std::chrono::microseconds>(call.deadline - call.arrival).count());
  }
  return record;
}

// Without scores where rows were late: they are not what the model says of the request.
void FillMessages(const ulfd::v1::PredictRequest& request,
                  const ulfd::v1::PredictResponse& response, Recording& record) {
  record.set_api(recording::v1::API_NATIVE);
  request.SerializeToString(record.mutable_request());
  if (response.late_ids() > 0) return;
  for (const ulfd::v1::OutputTensor& tensor : response.outputs()) {
    RecordedOutput& output = *record.add_outputs();
    output.set_name(tensor.name());
    *output.mutable_shape() = tensor.shape();
    *output.mutable_values() = tensor.values();
  }
  *record.mutable_indices() = response.indices();
}

void FillMessages(const inference::ModelInferRequest& request,
                  const inference::ModelInferResponse& response, Recording& record) {
  record.set_api(recording::v1::API_KSERVE);
  request.SerializeToString(record.mutable_request());
  if (response.parameters().contains("late_ids")) return;
  for (int i = 0; i < response.outputs_size(); ++i) AddOutput(response, i, *record.add_outputs());
}

template <typename Request, typename Response>
void Record(const AnsweredCall& call, const Request& request, const Response& response,
            Recorder* recorder) {
  if (recorder == nullptr) return;
  const bool chosen = recorder->Choose(call.info.name);
  const bool slow = recorder->AmongSlowest(call.info.name, call.duration_ns / 1000);
  if (!chosen && !slow) return;
  Recording record = Describe(call);
  FillMessages(request, response, record);
  if (chosen && slow) recorder->Add(record);
  slow ? recorder->AddSlow(std::move(record)) : recorder->Add(std::move(record));
}

}  // namespace

void RecordCall(const AnsweredCall& call, const ulfd::v1::PredictRequest& request,
                const ulfd::v1::PredictResponse& response, Recorder* recorder) {
  Record(call, request, response, recorder);
}

void RecordCall(const AnsweredCall& call, const inference::ModelInferRequest& request,
                const inference::ModelInferResponse& response, Recorder* recorder) {
  Record(call, request, response, recorder);
}

}  // namespace ulfd::server
