// How much memory models may hold, and whether one more fits: asked before a version is loaded
// aside, since old and new must fit together.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_MEMORY_BUDGET_H_
#define ULFD_SERVER_MODELS_MEMORY_BUDGET_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/directory/directory_tree.h"

namespace ulfd::server {

// 80 % of MemoryLimit(): the rest is for requests, for buffers of a load, and for everybody else.
int64_t DefaultMemoryBudget();

// What a version will probably hold once it is loaded, judged by the sizes of its files: text
// tables shrink, while weights are also kept in the order that the kernels want.
// `bytes_per_file_byte`: what an earlier version of the model needed, which tells better.
struct MemoryEstimate {
  int64_t file_bytes = 0;  // Without warmup/ and table files, which are mapped.
  int64_t bytes = 0;
};
absl::StatusOr<MemoryEstimate> EstimateMemory(const std::string& directory,
                                              const engine::DirectoryRules& rules,
                                              std::optional<double> bytes_per_file_byte);

// RESOURCE_EXHAUSTED with the sum if `needed` bytes do not fit beside the `held` ones.  `about`:
// the need is an estimate.
absl::Status CheckMemory(int64_t needed, bool about, int64_t held, int64_t budget);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_MEMORY_BUDGET_H_
