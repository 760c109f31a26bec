// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/print.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "tools/cli/text_table.h"

namespace ulfd::tools {

void Print(std::FILE* out, absl::string_view text) {
  const std::string printable = PrintableLines(text);
  std::fwrite(printable.data(), 1, printable.size(), out);
}

void PrintError(absl::string_view command, const absl::Status& error) {
  constexpr size_t kMaxBytes = 16384;  // Files, servers and stores have a say in it.
  Print(stderr, absl::StrCat(command, ": ", Clipped(error.message(), kMaxBytes), "\n"));
}

}  // namespace ulfd::tools
