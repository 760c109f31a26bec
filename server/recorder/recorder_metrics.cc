// SPDX-License-Identifier: Apache-2.0
#include "server/recorder/recorder_metrics.h"

namespace ulfd::server {

void CollectRecorder(const RecorderStats& stats, MetricPage& page) {
  page.AddCounter("ulfd_recorder_records_total", "Calls written to the recordings", stats.records);
  page.AddCounter("ulfd_recorder_bytes_total", "Bytes written to the recordings", stats.bytes);
  constexpr const char* kReasons[kRecorderDrops] = {"rate", "queue_full", "too_large", "disk"};
  for (int i = 0; i < kRecorderDrops; ++i) {
    page.AddCounter("ulfd_recorder_dropped_total",
                    "Calls that were chosen but not recorded: more than max_per_second (rate), "
                    "the disk too slow (queue_full), larger than a file (too_large), or "
                    "writing fails (disk)",
                    stats.dropped[i], {{"reason", kReasons[i]}});
  }
  page.AddGauge("ulfd_recorder_queued_bytes", "Recordings that wait to be written",
                stats.queued_bytes);
  page.AddGauge("ulfd_recorder_failing", "1 if writing failed and has not succeeded since",
                stats.failing ? 1 : 0);
}

}  // namespace ulfd::server
