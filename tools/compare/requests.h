// Requests in files, that models are compared on.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_COMPARE_REQUESTS_H_
#define ULFD_TOOLS_COMPARE_REQUESTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/model.h"
#include "engine/weights/npz.h"

namespace ulfd::tools {

struct SavedRequest {
  std::string source;  // "a.npz", "0.ulfrec, call 3": for messages.
  engine::NpzArrays inputs;
  std::vector<float> labels;  // Of its ads; empty: none.
  int64_t top_k = 0;          // How many of the best its caller got; 0: all, or it is not known.
};

// Reads npz files, files of the daemon's recorder, and folders of either, in the order of their
// names.  `labels`: the array of npz files that holds a label per ad; empty: there is none.
// INVALID_ARGUMENT for inputs that the model does not have or that hold a NaN or an infinity, and
// for fewer than two requests; NOT_FOUND where an npz file lacks the labels.
absl::StatusOr<std::vector<SavedRequest>> ReadRequests(const std::vector<std::string>& paths,
                                                       const std::string& labels,
                                                       const engine::ModelInfo& info);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_COMPARE_REQUESTS_H_
