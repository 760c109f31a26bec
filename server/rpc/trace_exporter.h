// TraceExporter: sends spans to a collector, by OTLP over gRPC.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_TRACE_EXPORTER_H_
#define ULFD_SERVER_RPC_TRACE_EXPORTER_H_

#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "proto/otlp.grpc.pb.h"
#include "server/observe/logging.h"
#include "server/observe/tracer.h"
#include "server/rpc/collector_link.h"

namespace ulfd::server {

struct TraceExporterOptions {
  std::string collector;                    // "host:port", plain text.
  std::chrono::milliseconds timeout{5000};  // Of one batch, which is then lost.
  std::string server_version;
};

// On a thread of its own.  A collector that fails or hangs costs spans, which are counted, and a
// line in the log when that begins and ends.
class TraceExporter {
 public:
  // `tracer` and `logger` are borrowed.
  TraceExporter(TraceExporterOptions options, Tracer& tracer, Logger& logger);
  // Sends what is left, in half a second at most.
  ~TraceExporter();

 private:
  using Request = opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
  void Loop();
  // Unless it is connected already.
  absl::Status Connect();
  void Export(const std::vector<Span>& spans);
  // OK, or why the collector did not take them all.
  grpc::Status Call(const Request& request);

  const TraceExporterOptions options_;
  Tracer& tracer_;
  Logger& logger_;
  // The thread's, as those below.
  std::unique_ptr<CollectorLink> link_;
  std::unique_ptr<opentelemetry::proto::collector::trace::v1::TraceService::Stub> stub_;
  bool failing_ = false;
  Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mu_) = nullptr;  // The one that runs.
  std::thread thread_;                                        // Last: it uses everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_TRACE_EXPORTER_H_
