// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/print.h"

#include <string>

#include "base/text.h"

namespace ulfd::tools {

void Print(std::FILE* out, absl::string_view text) {
  const std::string printable = PrintableLines(text);
  std::fwrite(printable.data(), 1, printable.size(), out);
}

}  // namespace ulfd::tools
