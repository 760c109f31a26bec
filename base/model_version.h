// Names of version directories.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_MODEL_VERSION_H_
#define ULFD_BASE_MODEL_VERSION_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace ulfd {

// The version that a directory name stands for: a positive decimal int64 without sign or leading
// zero, so that no two names stand for one version.
std::optional<int64_t> ParseVersion(absl::string_view name);

}  // namespace ulfd

#endif  // ULFD_BASE_MODEL_VERSION_H_
