// One request as kernels read it: every input of the model with the defaults filled in, and whose
// rows are whose.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_REQUEST_H_
#define ULFD_ENGINE_RUNTIME_REQUEST_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/plan/model_info.h"
#include "engine/tensor/tensor.h"

namespace ulfd::engine {

// Reused from request to request, so that a warm one allocates nothing.
struct Request {
  std::vector<const Tensor*> given;  // Per input of the model: what the caller gave, or nullptr.
  std::vector<Tensor> inputs;        // Per input of the model; unused ones may be empty.
  // Ads of user u: [user_begin[u], user_begin[u + 1]).  Empty where the caller did not say; the
  // request then has one user, and its inputs tell the number of ads.
  std::vector<int64_t> user_begin;

  int64_t users() const {
    return user_begin.empty() ? 1 : static_cast<int64_t>(user_begin.size()) - 1;
  }

  std::vector<int32_t> ones;         // Segments of one id per row.
  std::vector<int32_t> user_counts;  // Per input: segments of a single user.
};

// Fills in the defaults (all values 1; one id per row of an ad feature, all ids in the row of a
// single user) and checks what does not depend on the graph.  `request.given` is filled.
// INVALID_ARGUMENT names the input.
absl::Status FillRequest(const ModelInfo& info, absl::Span<const int64_t> ads_per_user,
                         Request& request);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_REQUEST_H_
