// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/call_summary.h"

#include <algorithm>

#include "server/observe/call_log.h"

namespace ulfd::server {
namespace {

constexpr int64_t kNsPerUs = 1000;

// Calls `write` with the fields of a line, which borrow from the call.
template <typename Write>
void WithFields(const CallSummary& call, Write write) {
  const CallTimes& times = call.times;
  const bool traced = call.trace.trace_id != TraceId{};
  write({{"request_id", call.request_id},
         {"trace_id", traced ? TraceIdText(call.trace.trace_id) : ""},
         {"peer", call.peer},
         {"model", call.model},
         {"version", call.version},
         {"code", absl::StatusCodeToString(call.status.code())},
         {"ads", call.ads},
         {"values", call.values},
         {"fetch_us", times.fetch_ns / kNsPerUs},
         {"queue_us", times.queue_ns / kNsPerUs},
         {"decode_us", times.decode_ns / kNsPerUs},
         {"user_us", times.user_ns / kNsPerUs},
         {"embed_us", times.embed_ns / kNsPerUs},
         {"dense_us", times.dense_ns / kNsPerUs},
         {"encode_us", times.encode_ns / kNsPerUs},
         {"total_us", times.total_ns / kNsPerUs},
         {"error", call.status.message()}});
}

bool Slower(const CallSummary& a, const CallSummary& b) {
  return a.times.total_ns > b.times.total_ns;
}

}  // namespace

void LogFailure(const CallSummary& call, Logger& logger) {
  WithFields(call, [&](Logger::Fields fields) { logger.Error("call failed", fields); });
}

void LogCall(const CallSummary& call, CallLog& log) {
  WithFields(call, [&](Logger::Fields fields) { log.Write(fields); });
}

std::vector<Span> SpansOf(const CallSummary& call) {
  const int64_t end_ns = std::chrono::nanoseconds(call.ended_at.time_since_epoch()).count();
  const int64_t start_ns = end_ns - call.times.total_ns;
  std::vector<Span> spans;
  spans.push_back({.trace_id = call.trace.trace_id,
                   .span_id = Tracer::NewSpanId(),
                   .parent_id = call.trace.parent_id,
                   .name = "score",
                   .server = true,
                   .start_ns = start_ns,
                   .end_ns = end_ns,
                   .attributes = {{"model", call.model},
                                  {"version", call.version},
                                  {"ads", call.ads},
                                  {"input_values", call.values},
                                  {"request_id", call.request_id},
                                  {"client.address", call.peer}},
                   .status = call.status});
  const CallTimes& times = call.times;
  const std::pair<const char*, int64_t> stages[] = {
      {"fetch", times.fetch_ns},    {"queue", times.queue_ns},      {"decode", times.decode_ns},
      {"user part", times.user_ns}, {"embeddings", times.embed_ns}, {"ad part", times.dense_ns},
      {"encode", times.encode_ns}};
  int64_t at_ns = start_ns;
  for (const auto& [name, took_ns] : stages) {
    if (took_ns == 0) continue;
    spans.push_back({.trace_id = call.trace.trace_id,
                     .span_id = Tracer::NewSpanId(),
                     .parent_id = spans[0].span_id,
                     .name = name,
                     .start_ns = at_ns,
                     .end_ns = at_ns + took_ns});
    at_ns += took_ns;
  }
  return spans;
}

void SlowCalls::Add(CallSummary call, TimePoint now) {
  const int64_t minute = MinuteOf(now);
  MutexLock lock(mu_);
  const int64_t last = minute_.load(std::memory_order_relaxed);
  if (minute > last) {
    before_ = minute == last + 1 ? std::move(now_) : std::vector<CallSummary>();
    now_.clear();
    least_ns_.store(0, std::memory_order_relaxed);
    minute_.store(minute, std::memory_order_relaxed);
  }
  now_.insert(std::upper_bound(now_.begin(), now_.end(), call, Slower), std::move(call));
  if (now_.size() > kPerMinute) now_.pop_back();
  if (now_.size() == kPerMinute) {
    least_ns_.store(now_.back().times.total_ns, std::memory_order_relaxed);
  }
}

std::vector<CallSummary> SlowCalls::Slowest(TimePoint now) const {
  MutexLock lock(mu_);
  const int64_t age = MinuteOf(now) - minute_.load(std::memory_order_relaxed);
  std::vector<CallSummary> calls;
  if (age <= 1) calls = now_;
  if (age == 0) calls.insert(calls.end(), before_.begin(), before_.end());
  std::stable_sort(calls.begin(), calls.end(), Slower);
  return calls;
}

}  // namespace ulfd::server
