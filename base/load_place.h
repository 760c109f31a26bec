// Where a load may read (load_scope.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_LOAD_PLACE_H_
#define ULFD_BASE_LOAD_PLACE_H_

#include <string>

#include "absl/status/status.h"

namespace ulfd {

// Whether what is open as `fd`, with every symbolic link followed, lies within the roots of the
// thread's LoadScope; INVALID_ARGUMENT, naming `path`, if it does not.
absl::Status CheckPlace(int fd, const std::string& path);

}  // namespace ulfd

#endif  // ULFD_BASE_LOAD_PLACE_H_
