// Which of the known names somebody may have meant, for error messages.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_CLOSEST_NAMES_H_
#define ULFD_BASE_CLOSEST_NAMES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ulfd {

// Single-character edits between two names; long ones are compared by their first 64 bytes.
size_t EditDistance(absl::string_view a, absl::string_view b);

// `; did you mean "mid" or "mid_list"?` for up to three names within a small edit distance; "" for
// none.
std::string DidYouMean(absl::string_view wrong, const std::vector<absl::string_view>& known);

}  // namespace ulfd

#endif  // ULFD_BASE_CLOSEST_NAMES_H_
