// Which of the known names somebody may have meant, for error messages.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_NAME_SUGGESTIONS_H_
#define ULFD_SERVER_SCORING_NAME_SUGGESTIONS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ulfd::server {

// `; did you mean "mid" or "mid_list"?` for up to three names within a small edit distance;
// otherwise `; the model has "a", "b", ...` with the first few; empty if there are no names at all.
std::string SuggestNames(absl::string_view wrong, const std::vector<absl::string_view>& known);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_NAME_SUGGESTIONS_H_
