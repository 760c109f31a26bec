// What computes products of matrices.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_BACKEND_H_
#define ULFD_ENGINE_KERNELS_BACKEND_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ulfd::engine {

enum class Backend : uint8_t {
  kNative,  // Our loops (fc.h).
  kOneDnn,
  kAuto,  // Whichever is faster for the shape on this machine.
};

// "native", "onednn", "auto".
absl::string_view Name(Backend backend);
// The backend of that name, in either case.  INVALID_ARGUMENT naming those that there are.
absl::StatusOr<Backend> ParseBackend(absl::string_view name);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_BACKEND_H_
