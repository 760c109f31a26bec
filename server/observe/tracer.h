// Traces: which calls are traced (W3C traceparent), and their spans until somebody sends them.
// Free of gRPC.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OBSERVE_TRACER_H_
#define ULFD_SERVER_OBSERVE_TRACER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "server/observe/metric_page.h"

namespace ulfd::server {

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

// Where a call stands in its caller's trace.
struct TraceContext {
  TraceId trace_id{};
  SpanId parent_id{};    // Of the caller's span; zeros: there is none.
  bool sampled = false;  // Somebody wants the spans.
};

// Reads "00-<32 hex>-<16 hex>-<2 hex>", and what later versions add behind that; nullopt: it is not
// one, and the call is treated as one without.
std::optional<TraceContext> ParseTraceparent(absl::string_view text);
// 32 hexadecimal digits.
std::string TraceIdText(const TraceId& id);

struct Span {
  TraceId trace_id{};
  SpanId span_id{}, parent_id{};  // Zeros: no parent.
  const char* name = "";
  bool server = false;  // Of a call, rather than of a part of it.
  // Unit: nanoseconds since 1970.
  int64_t start_ns = 0, end_ns = 0;
  std::vector<std::pair<const char*, std::variant<int64_t, std::string>>> attributes;
  absl::Status status;
};

struct TracerOptions {
  double share = 0;              // Of calls whose caller does not say.
  int64_t max_queued_spans = 0;  // Further ones are dropped.
};

// Thread-safe.
class Tracer {
 public:
  explicit Tracer(const TracerOptions& options) : options_(options) {}

  // The place of a call, by its "traceparent": the caller's flag decides whether it is sampled, and
  // the share where there is none.
  TraceContext ContextOf(absl::string_view traceparent) const;
  static TraceId NewTraceId();
  static SpanId NewSpanId();

  // Takes the spans of one call; if there are too many already, drops and counts them.
  void Add(std::vector<Span> spans);

  // For who sends them: up to kBatch, and fewer only at `until` or after Stop.
  static constexpr size_t kBatch = 512;
  std::vector<Span> Take(std::chrono::steady_clock::time_point until);
  void Stop();
  bool stopped() const;
  void CountSent(int64_t spans) { sent_.fetch_add(spans, std::memory_order_relaxed); }
  void CountFailed(int64_t spans) { failed_.fetch_add(spans, std::memory_order_relaxed); }

  // Spans that found no place.
  int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  void Collect(MetricPage& page) const;

 private:
  const TracerOptions options_;
  std::atomic<int64_t> sent_{0}, failed_{0}, dropped_{0};
  mutable Mutex mu_;
  CondVar changed_;
  std::vector<Span> waiting_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OBSERVE_TRACER_H_
