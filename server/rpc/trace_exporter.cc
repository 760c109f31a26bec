// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/trace_exporter.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>
#include <pthread.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "server/rpc/grpc_status.h"

namespace ulfd::server {
namespace {

namespace otlp = opentelemetry::proto::collector::trace::v1;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

// How long a batch that is not full waits for more.
constexpr milliseconds kGather{1000};
// What the end of the server waits for a collector.
constexpr milliseconds kLastWords{500};
// Of a text in a span, most of which callers write.
constexpr size_t kMaxTextBytes = 1024;

void AddText(const char* key, const std::string& text,
             google::protobuf::RepeatedPtrField<otlp::KeyValue>& out) {
  otlp::KeyValue& attribute = *out.Add();
  attribute.set_key(key);
  attribute.mutable_value()->set_string_value(Printable(text, kMaxTextBytes));
}

template <size_t N>
std::string Bytes(const std::array<uint8_t, N>& id) {
  return {reinterpret_cast<const char*>(id.data()), N};
}

void Fill(const Span& from, otlp::Span& to) {
  to.set_trace_id(Bytes(from.trace_id));
  to.set_span_id(Bytes(from.span_id));
  if (from.parent_id != SpanId{}) to.set_parent_span_id(Bytes(from.parent_id));
  to.set_name(from.name);
  to.set_kind(from.server ? otlp::Span::SPAN_KIND_SERVER : otlp::Span::SPAN_KIND_INTERNAL);
  to.set_start_time_unix_nano(static_cast<uint64_t>(from.start_ns));
  to.set_end_time_unix_nano(static_cast<uint64_t>(from.end_ns));
  for (const auto& [key, value] : from.attributes) {
    if (const std::string* text = std::get_if<std::string>(&value); text != nullptr) {
      if (!text->empty()) AddText(key, *text, *to.mutable_attributes());
      continue;
    }
    otlp::KeyValue& attribute = *to.add_attributes();
    attribute.set_key(key);
    attribute.mutable_value()->set_int_value(std::get<int64_t>(value));
  }
  if (from.status.ok()) return;
  to.mutable_status()->set_code(otlp::Status::STATUS_CODE_ERROR);
  to.mutable_status()->set_message(Printable(
      absl::StrCat(absl::StatusCodeToString(from.status.code()), ": ", from.status.message()),
      kMaxTextBytes));
}

// What answers of the collector may take; of a batch, with all frames around them.
constexpr int kMostHeaderBytes = 16 << 10, kMostReplyBytes = 64 << 10;
constexpr int64_t kMostBytes = 256 << 10;

grpc::ChannelArguments Arguments(const std::string& collector) {
  grpc::ChannelArguments arguments;
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, collector);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMostHeaderBytes);
  arguments.SetMaxReceiveMessageSize(kMostReplyBytes);
  return arguments;
}

}  // namespace

TraceExporter::TraceExporter(TraceExporterOptions options, Tracer& tracer, Logger& logger)
    : options_(std::move(options)), tracer_(tracer), logger_(logger), thread_([this] {
        pthread_setname_np(pthread_self(), "ulfd-trace");
        Loop();
      }) {}

TraceExporter::~TraceExporter() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  tracer_.Stop();
  thread_.join();
}

void TraceExporter::Loop() {
  while (true) {
    const std::vector<Span> spans = tracer_.Take(steady_clock::now() + kGather);
    if (!spans.empty()) Export(spans);
    if (!tracer_.stopped()) continue;
    const std::vector<Span> last = tracer_.Take(steady_clock::now());
    if (!last.empty()) Export(last);
    return;
  }
}

absl::Status TraceExporter::Connect() {
  if (link_ != nullptr && !link_->over()) {
    link_->Allow(kMostBytes);
    return absl::OkStatus();
  }
  stub_.reset();
  ASSIGN_OR_RETURN(link_, CollectorLink::Connect(options_.collector, kMostBytes));
  stub_ = otlp::TraceService::NewStub(grpc::CreateCustomInsecureChannelFromFd(
      options_.collector, link_->TakeEnd(), Arguments(options_.collector)));
  return absl::OkStatus();
}

grpc::Status TraceExporter::Call(const Request& request) {
  if (const absl::Status connected = Connect(); !connected.ok()) return ToGrpcStatus(connected);
  grpc::ClientContext context;
  otlp::ExportTraceServiceResponse response;
  {
    MutexLock lock(mu_);
    call_ = &context;
    context.set_deadline(system_clock::now() + (stopping_ ? kLastWords : options_.timeout));
  }
  grpc::Status status = stub_->Export(&context, request, &response);
  MutexLock lock(mu_);
  call_ = nullptr;
  if (status.ok() && response.partial_success().rejected_spans() > 0) {
    return {grpc::StatusCode::INVALID_ARGUMENT, response.partial_success().error_message()};
  }
  return status;
}

void TraceExporter::Export(const std::vector<Span>& spans) {
  Request request;
  otlp::ResourceSpans& ours = *request.add_resource_spans();
  AddText("service.name", "ulfd", *ours.mutable_resource()->mutable_attributes());
  AddText("service.version", options_.server_version,
          *ours.mutable_resource()->mutable_attributes());
  otlp::ScopeSpans& scope = *ours.add_scope_spans();
  scope.mutable_scope()->set_name("ulfd");
  for (const Span& span : spans) Fill(span, *scope.add_spans());
  const grpc::Status status = Call(request);
  const auto count = static_cast<int64_t>(spans.size());
  if (status.ok()) {
    tracer_.CountSent(count);
  } else {
    tracer_.CountFailed(count);
  }
  if (std::exchange(failing_, !status.ok()) == !status.ok()) return;
  if (status.ok()) {
    logger_.Info("the collector takes spans again", {{"collector", options_.collector}});
  } else {
    logger_.Warning("the collector does not take spans, which are lost and counted",
                    {{"collector", options_.collector},
                     {"error", Printable(status.error_message(), kMaxTextBytes)}});
  }
}

}  // namespace ulfd::server
