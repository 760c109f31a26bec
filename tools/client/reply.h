// What a call or an offline run gave, whichever API it came through: printed for people, saved for
// programs.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CLIENT_REPLY_H_
#define ULFD_TOOLS_CLIENT_REPLY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace ulfd::tools {

struct ReplyOutput {
  std::string name;
  std::vector<int64_t> shape;  // Rows first.
  std::vector<float> values;   // Row-major; as many as the product of `shape`.
};

struct Reply {
  std::string title;  // "model demo, version 1".
  std::vector<ReplyOutput> outputs;
  // With top_k: positions of the rows in the request, best first.
  std::vector<int32_t> indices;
  int64_t missing_ids = 0, late_ids = 0;
  // Named durations in the order of their happening.  Unit: microseconds.
  std::vector<std::pair<std::string, int64_t>> timings;
  double call_ms = 0;  // As the caller saw it; 0: not measured.
};

struct PrintOptions {
  std::vector<std::string> row_names;  // One per ad of the request; empty: no such column.
  int64_t max_rows = 20;               // 0: all.
};

// Errors: outputs whose shape and values disagree, indices below 0 or outside of row_names, fewer
// names than rows.
absl::Status PrintReply(const Reply& reply, const PrintOptions& options);

// Writes the outputs as float32 arrays, and "top_k.indices" if there are any.
absl::Status SaveReply(const Reply& reply, const std::string& path);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_CLIENT_REPLY_H_
