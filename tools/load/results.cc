// SPDX-License-Identifier: Apache-2.0
#include "tools/load/results.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace ulfd::tools {

std::string CodeName(int code) {
  // The codes of grpc and Abseil are the same.
  const std::string name = absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
  return name.empty() ? absl::StrCat("CODE_", code) : name;
}

std::string ReasonOf(int code, absl::string_view message) {
  constexpr size_t kMaxBytes = 160;
  std::string reason = absl::StrCat(CodeName(code), ": ");
  bool in_number = false;
  for (const char c : message) {
    if (reason.size() >= kMaxBytes) break;
    const bool digit = absl::ascii_isdigit(static_cast<unsigned char>(c));
    if (digit && !in_number) reason.push_back('N');
    if (!digit) reason.push_back(c == '\n' ? ' ' : c);
    in_number = digit;
  }
  return reason;
}

LoadResults::LoadResults(int64_t warmup_ns, int64_t interval_ns, int targets)
    : warmup_ns_(warmup_ns), interval_ns_(interval_ns) {
  figures_.targets.resize(static_cast<size_t>(targets));
}

LoadInterval& LoadResults::IntervalAt(int64_t intended_ns) {
  const auto index = static_cast<size_t>(std::max<int64_t>(0, intended_ns) / interval_ns_);
  if (index >= intervals_.size()) intervals_.resize(index + 1);
  return intervals_[index];
}

void LoadResults::Count(const CallOutcome& call) {
  const bool ok = call.code == 0;
  const int64_t latency = call.done_ns - call.intended_ns;
  const std::string reason = ok ? "" : ReasonOf(call.code, call.message);
  MutexLock lock(mu_);
  LoadInterval& interval = IntervalAt(call.intended_ns);
  ++interval.sent;
  ++(ok ? interval.ok : interval.failed);
  ++(ok ? live_.ok : live_.failed);
  if (ok) {
    interval.latency.Record(latency);
    live_.latency.Record(latency);
  }
  if (call.intended_ns < warmup_ns_) {
    ++figures_.warmup_calls;
    if (!ok) ++figures_.warmup_failed;
    return;
  }
  TargetFigures& target = figures_.targets[static_cast<size_t>(call.target)];
  ++figures_.sent;
  ++target.sent;
  ++figures_.codes[call.code];
  figures_.send_lag.Record(call.sent_ns - call.intended_ns);
  if (!ok) {
    ++figures_.failed;
    ++target.failed;
    figures_.failures.Record(latency);
    const bool room = figures_.reasons.size() < kMaxReasons || figures_.reasons.count(reason) > 0;
    ++figures_.reasons[room ? reason : "other"];
    return;
  }
  ++figures_.ok;
  ++target.ok;
  figures_.ads_ok += call.ads;
  figures_.corrected.Record(latency);
  figures_.uncorrected.Record(call.done_ns - call.sent_ns);
  // A recording of a foreign model may not know its ads.
  const auto ads = static_cast<uint64_t>(std::max<int64_t>(1, call.ads));
  figures_.by_ads[static_cast<int>(std::bit_width(ads))].Record(latency);
}

void LoadResults::CountUnsent(int64_t intended_ns, Unsent why) {
  MutexLock lock(mu_);
  ++IntervalAt(intended_ns).unsent;
  ++live_.unsent;
  if (intended_ns >= warmup_ns_) ++figures_.unsent[static_cast<size_t>(why)];
}

LivePoint LoadResults::TakeLive() {
  MutexLock lock(mu_);
  return std::exchange(live_, LivePoint());
}

LoadFigures LoadResults::figures() const {
  MutexLock lock(mu_);
  return figures_;
}

std::vector<LoadInterval> LoadResults::intervals() const {
  MutexLock lock(mu_);
  return intervals_;
}

}  // namespace ulfd::tools
