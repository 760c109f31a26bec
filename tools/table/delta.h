// Deltas of tables: what tells two tables apart, and directories that say so to the daemon.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_TABLE_DELTA_H_
#define ULFD_TOOLS_TABLE_DELTA_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/embedding/row_format.h"
#include "tools/table/row_sources.h"

namespace ulfd::tools {

class ModelFlags;

struct PushOptions {
  std::string version_directory;
  int64_t epoch = 0;
  std::optional<int64_t> base_epoch;     // Absent: the highest complete one below `epoch`.
  std::optional<absl::Time> event_time;  // Absent: now.
  engine::RowFormat format = engine::RowFormat::kFp32;  // Of rows that are no table file yet.
  int64_t memory_bytes = 0;                             // For rows that are sorted.
  DumpKeys keys = DumpKeys::kInt64;
  ModelFlags* model_flags = nullptr;  // How the version is loaded; borrowed.
};

// Writes deltas/EPOCH of the version directory and gives it its name once it is whole.  `parts`:
// "put:TABLE=INPUT[,INPUT...]" (what ReadRows takes, or one table file), "drop:TABLE=FILE" (ids,
// one per line), "weights:FILE".  Errors name part or file; nothing is left then.  What the daemon
// would refuse is one, unless no model is there yet or tables lie in a Redis that nobody named.
absl::Status PushDelta(const PushOptions& options, absl::Span<const std::string> parts);

// Prints how many rows of table `to` differ from table `from`, or are in one of them alone.  Unless
// `prefix` is empty, writes PREFIX.ulft with the rows to put and PREFIX.ids with the ids to drop,
// as far as there are any, that make `to` of `from`.
absl::Status DiffTables(const std::string& from, const std::string& to, const std::string& prefix);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_TABLE_DELTA_H_
