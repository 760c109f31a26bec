// What one worker keeps between runs.
// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/workspace.h"

namespace ulfd::engine {

void* Arena::Reserve(int64_t bytes) {
  if (bytes > bytes_) {
    const int64_t size = (bytes + 4095) / 4096 * 4096;
    data_.reset(std::aligned_alloc(64, static_cast<size_t>(size)));
    bytes_ = data_ ? size : 0;
    if (!data_) std::abort();  // As operator new does where exceptions end the process.
  }
  return data_.get();
}

void Arena::Release() {
  data_.reset();
  bytes_ = 0;
}

}  // namespace ulfd::engine
