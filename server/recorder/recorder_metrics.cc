// RecorderStats -> families.
// SPDX-License-Identifier: Apache-2.0
#include "server/recorder/recorder_metrics.h"

#include <utility>

#include "server/observe/metrics.h"

namespace ulfd::server {

using prometheus::MetricType;

void AddRecorder(const RecorderStats& stats, std::vector<prometheus::MetricFamily>& families) {
  const auto counter = [&](const char* name, const char* help, int64_t value) {
    families.push_back(
        Family(name, help, MetricType::Counter, {CounterSample(static_cast<double>(value))}));
  };
  counter("ulfd_recorder_records_total", "Calls written to the recordings", stats.records);
  counter("ulfd_recorder_bytes_total", "Bytes written to the recordings", stats.bytes);
  auto dropped = Family("ulfd_recorder_dropped_total",
                        "Calls that were chosen but not recorded: more than max_per_second (rate), "
                        "the disk too slow (queue_full), larger than a file (too_large), or "
                        "writing fails (disk)",
                        MetricType::Counter);
  constexpr const char* kReasons[kRecorderDrops] = {"rate", "queue_full", "too_large", "disk"};
  for (int i = 0; i < kRecorderDrops; ++i) {
    dropped.metric.push_back(
        CounterSample(static_cast<double>(stats.dropped[i]), {{"reason", kReasons[i]}}));
  }
  families.push_back(std::move(dropped));
  families.push_back(Family("ulfd_recorder_queued_bytes", "Recordings that wait to be written",
                            MetricType::Gauge,
                            {GaugeSample(static_cast<double>(stats.queued_bytes))}));
  families.push_back(Family("ulfd_recorder_failing",
                            "1 if writing failed and has not succeeded since", MetricType::Gauge,
                            {GaugeSample(stats.failing ? 1 : 0)}));
}

}  // namespace ulfd::server
