// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/workspace.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"

namespace ulfd::engine {

absl::Status Arena::Reserve(int64_t bytes) {
  used_ = std::max(used_, bytes);
  if (bytes <= bytes_) return absl::OkStatus();
  constexpr int64_t kPage = 4096;
  Release();
  const int64_t size = SaturatingAdd(bytes, kPage - 1) / kPage * kPage;
  data_.reset(std::aligned_alloc(64, static_cast<size_t>(size)));
  if (data_ == nullptr) {
    return Unavailable("the system has no ", size, " bytes for the values of a run");
  }
  bytes_ = size;
  return absl::OkStatus();
}

void Arena::Release() {
  data_.reset();
  bytes_ = 0;
}

bool Arena::Shrink() {
  // As much as a tile takes that stays in the second-level cache.
  constexpr int64_t kSmall = 1 << 20;
  if (bytes_ > kSmall && used_ <= bytes_ / 2) Release();
  used_ = 0;
  return bytes_ > kSmall;
}

int64_t Binding::bytes() const {
  size_t bytes = (key.size() + layout.offsets.size()) * sizeof(int64_t) +
                 values.size() * sizeof(Tensor) + steps.size() * sizeof(StepTensors);
  for (const StepTensors& step : steps) {
    bytes += (step.in.size() + step.out.size()) * sizeof(Tensor);
  }
  return static_cast<int64_t>(bytes);
}

Binding& WorkspaceState::Keep(Binding binding) {
  bindings.push_front(std::move(binding));
  int64_t bytes = 0;
  for (const Binding& kept : bindings) bytes += kept.bytes();
  while (bindings.size() > 1 && (bindings.size() > kMaxBindings || bytes > kMaxBindingBytes)) {
    bytes -= bindings.back().bytes();
    bindings.pop_back();
  }
  return bindings.front();
}

}  // namespace ulfd::engine
