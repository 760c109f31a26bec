// SPDX-License-Identifier: Apache-2.0
#include "server/services/status_report.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "server/scoring/decoded_request.h"
#include "server/scoring/response_encoder.h"
#include "server/services/model_description.h"

namespace ulfd::server {

BuildFacts ThisBuild() {
#if defined(__clang__)
  const std::string compiler = absl::StrCat("clang ", __clang_version__);
#else
  const std::string compiler = absl::StrCat("gcc ", __VERSION__);
#endif
  return {ULFD_VERSION, absl::StrCat(compiler, ", ", ULFD_BUILD_TYPE)};
}

namespace {

void FillSlowCall(const CallSummary& call, ulfd::admin::v1::SlowCall& out) {
  FillTime(call.ended_at, *out.mutable_ended_at());
  out.set_request_id(Printable(call.request_id, kMaxRequestIdBytes));
  out.set_model(call.model);
  out.set_version(call.version);
  out.set_code(absl::StatusCodeToString(call.status.code()));
  out.set_ads(call.ads);
  out.set_input_values(call.values);
  FillTimings(call.times, *out.mutable_timings());
  if (call.trace.trace_id != TraceId{}) out.set_trace_id(TraceIdText(call.trace.trace_id));
}

void FillTraffic(const ModelStatus& model, ulfd::admin::v1::GetStatusResponse& out) {
  using ulfd::admin::v1::TrafficShare;
  const auto add = [&](TrafficShare::Kind kind, const std::string& label, double share) {
    TrafficShare& added = *out.add_traffic_shares();
    added.set_model(model.name);
    added.set_kind(kind);
    added.set_label(label);
    added.set_share(share);
    return &added;
  };
  if (const auto& canary = model.canary; canary.has_value()) {
    TrafficShare* share = add(TrafficShare::KIND_CANARY, canary->label, canary->share);
    share->set_metadata(canary->metadata);
    share->set_feature(canary->feature);
  }
  if (const auto& shadow = model.shadow; shadow.has_value()) {
    add(TrafficShare::KIND_SHADOW, shadow->label, shadow->share);
  }
}

}  // namespace

void StatusReport::Fill(ulfd::admin::v1::GetStatusResponse& out) const {
  using std::chrono::duration_cast;
  using std::chrono::seconds;
  ulfd::admin::v1::ServerFacts& server = *out.mutable_server();
  const BuildFacts build = ThisBuild();
  server.set_version(build.version);
  server.set_build(build.build);
  server.mutable_started_at()->set_seconds(
      duration_cast<seconds>(started_.time_since_epoch()).count());
  server.mutable_uptime()->set_seconds(
      duration_cast<seconds>(std::chrono::steady_clock::now() - started_steady_).count());
  server.set_ready(readiness_.ServerReady());
  server.set_draining(readiness_.draining());
  const SchedulerStats stats = scheduler_.Stats();
  server.set_workers(stats.workers);
  server.set_busy_workers(stats.busy_workers);
  server.set_queued_requests(stats.queued_requests);
  server.set_queued_rows(stats.queued_rows);
  server.set_max_queued_requests(max_queued_requests_);
  server.set_max_queued_rows(max_queued_rows_);
  DescribeModels(models_, *out.mutable_models());
  out.set_generation(models_.generation());
  for (const CallSummary& call : slow_calls_.Slowest(std::chrono::steady_clock::now())) {
    FillSlowCall(call, *out.add_slowest_calls());
  }
  for (const ModelStatus& model : models_.List()) FillTraffic(model, out);
  for (ulfd::admin::v1::ModelEvent& event : events_.Recent()) {
    *out.add_recent_events() = std::move(event);
  }
}

std::string StatusReport::Json() const {
  ulfd::admin::v1::GetStatusResponse report;
  Fill(report);
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(report, &json, options);
  return status.ok() ? json : absl::StrCat("{\"error\": \"", status.message().ToString(), "\"}\n");
}

}  // namespace ulfd::server
