// SPDX-License-Identifier: Apache-2.0
#include "base/model_version.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace ulfd {

std::optional<int64_t> ParseVersion(absl::string_view name) {
  // SimpleAtoi alone would also take "+1", " 1" and "01".
  if (name.empty() || name[0] == '0') return std::nullopt;
  for (const char c : name) {
    if (!absl::ascii_isdigit(c)) return std::nullopt;
  }
  int64_t version;
  if (!absl::SimpleAtoi(name, &version)) return std::nullopt;  // Beyond int64.
  return version;
}

}  // namespace ulfd
