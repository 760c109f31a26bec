// Aligned columns for a terminal.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CLI_TEXT_TABLE_H_
#define ULFD_TOOLS_CLI_TEXT_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ulfd::tools {

// Collects rows, then prints them with every column as wide as its widest cell.
class TextTable {
 public:
  // A heading that ends in ">" belongs to a right-aligned column; the ">" is not printed.  Of
  // headings and cells 4 KiB are: every row is as wide as the widest.
  explicit TextTable(std::vector<std::string> headings);
  // REQUIRES: as many cells as headings.
  void AddRow(std::vector<std::string> cells);
  bool empty() const { return rows_.size() == 1; }
  // Each line indented by two blanks and ended by a newline.
  std::string ToString() const;

 private:
  std::vector<bool> right_aligned_;
  std::vector<std::vector<std::string>> rows_;  // The first one holds the headings.
};

// "1,234,567".
std::string WithCommas(int64_t number);
// "950", "12.3 k", "20.6 M": three digits and a thousand's name; also for negative numbers.
std::string HumanNumber(double number);
// "512 B", "1.5 KiB", "14.2 MiB"; also for negative numbers.
std::string HumanBytes(int64_t bytes);
// At most `width` bytes, ending in "..." if something was cut off.
std::string Clipped(absl::string_view text, size_t width);

// Append a heading and what stands below it, or nothing where that is empty.
void AppendSection(absl::string_view title, const TextTable& table, std::string& text);
void AppendSection(absl::string_view title, const std::vector<std::string>& lines,
                   std::string& text);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_CLI_TEXT_TABLE_H_
