// Names in URLs.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_PERCENT_ENCODING_H_
#define ULFD_BASE_PERCENT_ENCODING_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ulfd {

// Bytes for their %XX; what is no such sequence stays.
std::string DecodePercent(absl::string_view text);

}  // namespace ulfd

#endif  // ULFD_BASE_PERCENT_ENCODING_H_
