// Why a load failed, as one of a bounded set of words: fit for a metric's label, which a message is
// not.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_DIRECTORY_LOAD_REASON_H_
#define ULFD_ENGINE_DIRECTORY_LOAD_REASON_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ulfd::engine {

enum class LoadReason : uint8_t {
  kManifest,    // "manifest"    model.textproto
  kSums,        // "sums"        a file differs from the manifest's sum
  kParse,       // "parse"       the graph, or an embedding configuration
  kGraph,       // "graph"       layers, shapes, levels
  kWeights,     // "weights"     the weight file, or a weight that is missing or misshapen
  kTable,       // "table"       an embedding table
  kWarmup,      // "warmup"      the made-up request failed
  kIncomplete,  // "incomplete"  a file that the graph names is missing
  kChanged,     // "changed"     the files changed while they were read
  kMemory,      // "memory"      RESOURCE_EXHAUSTED, or over the manifest's or the load's limit
  kTime,        // "time"        the load took longer than it may
  kIo,          // "io"          the file system or the machine, not the content
  kContent,     // "content"     bad content, not said which
};
absl::string_view LoadReasonName(LoadReason reason);

// Attaches `reason` to a status that is not OK and has none yet: the innermost knows best.
absl::Status WithLoadReason(absl::Status status, LoadReason reason);
template <typename T>
absl::StatusOr<T> WithLoadReason(absl::StatusOr<T> result, LoadReason reason) {
  if (result.ok()) return result;
  return WithLoadReason(result.status(), reason);
}
// The attached reason, or else one derived from the code.
LoadReason LoadReasonOf(const absl::Status& status);

// Whether `status` speaks of the content, so that loading the same files again cannot help:
// INVALID_ARGUMENT, FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED, ALREADY_EXISTS, DATA_LOSS.
// Every other code may be the machine's or the file system's doing (NOT_FOUND: a file that went
// away; PERMISSION_DENIED: chmod leaves no trace in a file's times; RESOURCE_EXHAUSTED,
// UNAVAILABLE, INTERNAL, UNKNOWN, ...).
bool IsContentError(const absl::Status& status);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_DIRECTORY_LOAD_REASON_H_
