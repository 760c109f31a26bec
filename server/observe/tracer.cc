// SPDX-License-Identifier: Apache-2.0
#include "server/observe/tracer.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>

#include "absl/strings/escaping.h"

namespace ulfd::server {
namespace {

// One for each thread, so that nobody waits for it.
uint64_t Random() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return generator();
}

template <size_t N>
std::array<uint8_t, N> RandomId() {
  std::array<uint8_t, N> id;
  do {
    for (size_t at = 0; at < N; at += sizeof(uint64_t)) {
      const uint64_t part = Random();
      std::memcpy(id.data() + at, &part, sizeof(part));
    }
  } while (id == std::array<uint8_t, N>{});
  return id;
}

// Lower-case hexadecimal digits, not all zero.
template <size_t N>
bool ReadId(absl::string_view text, std::array<uint8_t, N>& id) {
  if (text.find_first_not_of("0123456789abcdef") != absl::string_view::npos) return false;
  const std::string bytes = absl::HexStringToBytes(text);
  std::copy(bytes.begin(), bytes.end(), id.begin());
  return id != std::array<uint8_t, N>{};
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(absl::string_view text) {
  constexpr size_t kSize = 55;
  if (text.size() < kSize || text[2] != '-' || text[35] != '-' || text[52] != '-') {
    return std::nullopt;
  }
  // Version 0 ends there; later ones may go on, "ff" never.
  std::array<uint8_t, 1> version{}, flags{};
  ReadId(text.substr(0, 2), version);
  if (text.substr(0, 2).find_first_not_of("0123456789abcdef") != absl::string_view::npos ||
      version[0] == 0xff || (version[0] == 0 && text.size() != kSize) ||
      (text.size() > kSize && text[kSize] != '-')) {
    return std::nullopt;
  }
  const absl::string_view flag_text = text.substr(53, 2);
  if (flag_text.find_first_not_of("0123456789abcdef") != absl::string_view::npos) {
    return std::nullopt;
  }
  ReadId(flag_text, flags);
  TraceContext context{.sampled = (flags[0] & 1) != 0};
  if (!ReadId(text.substr(3, 32), context.trace_id)) return std::nullopt;
  if (!ReadId(text.substr(36, 16), context.parent_id)) return std::nullopt;
  return context;
}

std::string TraceIdText(const TraceId& id) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(id.data()), id.size()});
}

TraceContext Tracer::ContextOf(absl::string_view traceparent) const {
  if (const auto context = ParseTraceparent(traceparent); context.has_value()) return *context;
  constexpr double kTwoTo64 = 18446744073709551616.0;
  if (options_.share <= 0 || static_cast<double>(Random()) >= options_.share * kTwoTo64) return {};
  return {.trace_id = NewTraceId(), .sampled = true};
}

TraceId Tracer::NewTraceId() { return RandomId<16>(); }

SpanId Tracer::NewSpanId() { return RandomId<8>(); }

void Tracer::Add(std::vector<Span> spans) {
  MutexLock lock(mu_);
  if (static_cast<int64_t>(waiting_.size() + spans.size()) > options_.max_queued_spans) {
    dropped_.fetch_add(static_cast<int64_t>(spans.size()), std::memory_order_relaxed);
    return;
  }
  std::move(spans.begin(), spans.end(), std::back_inserter(waiting_));
  if (waiting_.size() >= kBatch) changed_.NotifyAll();
}

std::vector<Span> Tracer::Take(std::chrono::steady_clock::time_point until) {
  MutexLock lock(mu_);
  while (waiting_.size() < kBatch && !stopped_ && changed_.WaitUntil(mu_, until)) {
  }
  const auto end = waiting_.begin() + static_cast<int64_t>(std::min(kBatch, waiting_.size()));
  std::vector<Span> taken(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
  waiting_.erase(waiting_.begin(), end);
  return taken;
}

void Tracer::Stop() {
  MutexLock lock(mu_);
  stopped_ = true;
  changed_.NotifyAll();
}

bool Tracer::stopped() const {
  MutexLock lock(mu_);
  return stopped_;
}

void Tracer::Collect(MetricPage& page) const {
  const std::pair<const char*, const std::atomic<int64_t>*> outcomes[] = {
      {"sent", &sent_}, {"failed", &failed_}, {"dropped", &dropped_}};
  for (const auto& [outcome, spans] : outcomes) {
    page.AddCounter("ulfd_trace_spans_total",
                    "Spans that the collector took (sent) or did not take in time (failed), and "
                    "those that were dropped because too many waited (dropped)",
                    spans->load(std::memory_order_relaxed), {{"outcome", outcome}});
  }
}

}  // namespace ulfd::server
