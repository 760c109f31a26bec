// Compares the checksums of table files that are too large for a load to do so, aside and at low
// priority.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_TABLE_CHECKER_H_
#define ULFD_SERVER_MODELS_TABLE_CHECKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "engine/embedding/table.h"
#include "engine/embedding/table_file.h"
#include "server/models/model_types.h"
#include "server/system/background_queue.h"

namespace ulfd::server {

// One file at a time, each once, while somebody has it open.  The end of it ends the check that
// runs, without a report.  Thread-safe.
class TableChecker {
 public:
  // What a disk is asked for beside serving.
  static constexpr int64_t kBytesPerSecond = int64_t{128} << 20;

  // A table of a model is damaged, or its file cannot be read; on the checker's thread.
  using Report =
      std::function<void(const std::string& model, int64_t version, const absl::Status& damage)>;
  // Files of up to `checked_bytes` were read at load.
  explicit TableChecker(Report report, uint64_t checked_bytes = engine::kCheckedTableBytes)
      : report_(std::move(report)), checked_bytes_(checked_bytes) {}
  // A model that serves from now on.
  void Offer(const ServedModel& model);

 private:
  using Rows = std::weak_ptr<const engine::TableRows>;
  struct Offered {
    std::string model;
    int64_t version = 0;
    std::string table;
    Rows rows;
  };
  void Check(const Offered& offered);

  const Report report_;
  const uint64_t checked_bytes_;
  Mutex mu_;
  std::vector<Rows> known_ ABSL_GUARDED_BY(mu_);  // Offered at some time.
  BackgroundQueue queue_{"ulfd-check"};           // Last: it uses everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_TABLE_CHECKER_H_
