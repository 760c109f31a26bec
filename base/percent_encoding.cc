// SPDX-License-Identifier: Apache-2.0
#include "base/percent_encoding.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace ulfd {

std::string DecodePercent(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '%' && i + 2 < text.size() &&
                         absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) &&
                         absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2]));
    if (escaped) {
      out += absl::HexStringToBytes(text.substr(i + 1, 2));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

}  // namespace ulfd
