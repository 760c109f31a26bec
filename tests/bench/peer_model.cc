// One model in both engines.
// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/peer_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ulfd::bench {
namespace {

using engine::InputInfo;
using engine::Level;
using engine::NamedTensor;

constexpr double kTolerance = 1e-5;

bool HasUserInputs(const engine::ModelInfo& info) {
  return std::any_of(info.inputs.begin(), info.inputs.end(),
                     [](const InputInfo& input) { return input.level == Level::kUser; });
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerModel>> PeerModel::Make(
    const TargetContext& context, const std::string& name,
    const std::function<void(ScratchModel&)>& build) {
  auto peer = std::make_unique<PeerModel>();
  const std::string directory = absl::StrCat(context.scratch, "/", name, "/1");
  ScratchModel scratch;
  build(scratch);
  ASSIGN_OR_RETURN(peer->model_, scratch.Load(directory));
  if (context.ort == nullptr) return peer;
  const std::string base = absl::StrCat(context.scratch, "/", name);
  RETURN_IF_ERROR(
      RunProgram({context.root + "/tests/bench/export_onnx", directory, base}).status());
  for (const char* style : {"broadcast", "tiled"}) {
    ASSIGN_OR_RETURN(auto session, context.ort->Load(absl::StrCat(base, ".", style, ".onnx")));
    peer->exports_.push_back({style, std::move(session)});
    if (!HasUserInputs(peer->model_->info())) break;
  }
  return peer;
}

PeerRequest::PeerRequest(PeerModel& peer, int64_t ads, int64_t masked)
    : peer_(peer), request_(peer.model().info(), ads, /*ids_per_user=*/1, /*table_rows=*/1) {
  for (const NamedTensor& input : request_.inputs()) {
    if (input.tensor.dtype != engine::DType::kInt32) continue;
    int32_t* values = static_cast<int32_t*>(input.tensor.data);
    std::fill(values, values + std::min(masked, input.tensor.elements()), 0);
  }
  for (const engine::OutputInfo& output : peer.model().info().outputs) {
    engine::Tensor tensor{engine::DType::kFloat32, {}, nullptr};
    for (const engine::Dim& dim : output.shape.dims()) {
      tensor.dims.push_back(dim.IsAds() ? dim.value() * ads : dim.value());
    }
    tensor.data = outputs_.emplace_back(tensor.elements()).data();
    peer_outputs_.push_back({output.name, std::move(tensor)});
  }
  for (PeerModel::Export& exported : peer.exports()) {
    std::vector<NamedTensor> inputs(request_.inputs().begin(), request_.inputs().end());
    for (NamedTensor& input : inputs) {
      const InputInfo& info = peer.model().info().inputs[peer.model().FindInput(input.name)];
      if (exported.style != "tiled" || info.level != Level::kUser) continue;
      const size_t bytes = input.tensor.bytes();
      std::vector<char>& rows = tiled_.emplace_back(bytes * ads);
      for (int64_t ad = 0; ad < ads; ++ad) {
        std::memcpy(&rows[ad * bytes], input.tensor.data, bytes);
      }
      input.tensor.dims[0] = ads;
      input.tensor.data = rows.data();
    }
    bound_.Update(exported.session->Bind(inputs, peer_outputs_));
  }
}

absl::Status PeerRequest::Check() {
  RETURN_IF_ERROR(bound_);
  for (const Contender& contender : Contenders()) {
    for (std::vector<float>& output : outputs_) std::fill(output.begin(), output.end(), NAN);
    RETURN_IF_ERROR(contender.run());
    if (contender.name != "ours") RETURN_IF_ERROR(Compare(contender.name));
  }
  return absl::OkStatus();
}

absl::Status PeerRequest::Compare(const std::string& style) {
  for (size_t o = 0; o < peer_outputs_.size(); ++o) {
    const engine::Tensor& ours = result_.outputs[o];
    const engine::Tensor& theirs = peer_outputs_[o].tensor;
    if (ours.dims != theirs.dims) {
      return absl::InternalError(absl::StrCat("output \"", peer_outputs_[o].name, "\": shape ",
                                              engine::ToString(ours.dims), ", ONNX Runtime's is ",
                                              engine::ToString(theirs.dims)));
    }
    for (int64_t i = 0; i < ours.elements(); ++i) {
      const double difference = std::abs(ours.f32()[i] - theirs.f32()[i]);
      if (difference <= kTolerance) continue;  // False for NaN as well.
      return absl::InternalError(absl::StrCat("output \"", peer_outputs_[o].name, "\" element ", i,
                                              ": ", ours.f32()[i], ", ONNX Runtime (", style,
                                              ") has ", theirs.f32()[i]));
    }
  }
  return absl::OkStatus();
}

std::vector<Contender> PeerRequest::Contenders() {
  std::vector<Contender> contenders;
  contenders.push_back(
      {"ours", [this] { return peer_.model().Run(request_.inputs(), {}, workspace_, result_); }});
  for (PeerModel::Export& exported : peer_.exports()) {
    contenders.push_back(
        {exported.style, [session = exported.session.get()] { return session->Run(); }});
  }
  return contenders;
}

}  // namespace ulfd::bench
