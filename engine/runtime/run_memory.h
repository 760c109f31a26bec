// What a run takes, and which tensor makes it too large.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_RUN_MEMORY_H_
#define ULFD_ENGINE_RUNTIME_RUN_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "engine/runtime/workspace.h"

namespace ulfd::engine {

// The largest of the tensors that were offered, for the error.
class LargestTensor {
 public:
  // `name` is borrowed.
  void Offer(const std::string& name, const Tensor& tensor) {
    if (name_ != nullptr && tensor.bytes() <= bytes_) return;
    name_ = &name;
    dims_ = tensor.dims;
    bytes_ = tensor.bytes();
  }
  // RESOURCE_EXHAUSTED: the run needs so many bytes, and may take `limit`.
  absl::Status TooMuch(int64_t needed, int64_t limit) const {
    std::string text = absl::StrCat("the request needs ", needed, " bytes of memory, want at most ",
                                    limit, " (limits.max_request_memory_bytes)");
    if (name_ != nullptr) {
      absl::StrAppend(&text, "; its largest tensor is \"", *name_, "\" of ", ToString(dims_));
    }
    return ResourceExhausted(text);
  }

 private:
  const std::string* name_ = nullptr;
  TensorDims dims_;
  size_t bytes_ = 0;
};

// Whether the arenas, the scratch and so many bytes of outputs of a run by rows are within the
// limit of `options`.  RESOURCE_EXHAUSTED names the largest tensor.
absl::Status CheckRunMemory(const RunOptions& options, const UserPart& part, int64_t output_bytes);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_RUN_MEMORY_H_
