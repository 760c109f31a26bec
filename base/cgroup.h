// The limits of the control groups that the process is in.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_CGROUP_H_
#define ULFD_BASE_CGROUP_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace ulfd {

// The smallest limit from the process's cgroup up to the root, for cgroup v2 and for v1's
// `controller`; nullopt: there is none, or none that can be read.  `read` says the limit of a
// directory, which has v2's files or v1's, or need not exist.  `root` goes before every path: ""
// for this machine, a directory with fake proc/ and sys/ trees in tests.
std::optional<int64_t> SmallestCgroupLimit(
    const std::string& root, absl::string_view controller,
    absl::FunctionRef<std::optional<int64_t>(const std::string& directory)> read);

}  // namespace ulfd

#endif  // ULFD_BASE_CGROUP_H_
