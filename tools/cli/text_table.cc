// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/text_table.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text.h"

namespace ulfd::tools {

namespace {

// Places on a terminal: UTF-8 characters, not bytes.
size_t Width(const std::string& cell) {
  return static_cast<size_t>(
      std::count_if(cell.begin(), cell.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

TextTable::TextTable(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    right_aligned_.push_back(!heading.empty() && heading.back() == '>');
    if (right_aligned_.back()) heading.pop_back();
  }
  AddRow(std::move(headings));
}

void TextTable::AddRow(std::vector<std::string> cells) {
  assert(cells.size() == right_aligned_.size());
  for (std::string& cell : cells) cell = Clipped(cell, kMaxKeptErrorBytes);
  rows_.push_back(std::move(cells));
}

std::string TextTable::ToString() const {
  std::vector<size_t> widths(right_aligned_.size());
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - Width(row[i]), ' ');
      absl::StrAppend(&line, "  ", right_aligned_[i] ? padding : "", row[i],
                      right_aligned_[i] ? "" : padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string WithCommas(int64_t number) {
  const std::string digits = absl::StrCat(number);
  const size_t first = number < 0 ? 1 : 0;
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string HumanNumber(double number) {
  const double magnitude = std::abs(number);
  if (magnitude < 999.5) return absl::StrFormat("%.0f", number);
  const char* const units[] = {"k", "M", "G", "T", "P"};
  double scaled = number / 1e3;
  size_t unit = 0;
  for (; std::abs(scaled) >= 999.5 && unit + 1 < 5; ++unit) scaled /= 1e3;
  const int digits = std::abs(scaled) < 9.995 ? 2 : std::abs(scaled) < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f %s", digits, scaled, units[unit]);
}

std::string HumanBytes(int64_t bytes) {
  if (bytes < 0) return absl::StrCat("-", HumanBytes(-bytes));
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double size = static_cast<double>(bytes);
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (size /= 1024; size >= 1024 && unit + 1 < 4; ++unit) size /= 1024;
  return absl::StrFormat("%.1f %s", size, units[unit]);
}

std::string Clipped(absl::string_view text, size_t width) {
  if (text.size() <= width) return std::string(text);
  return absl::StrCat(Beginning(text, width - 3), "...");
}

void AppendSection(absl::string_view title, const TextTable& table, std::string& text) {
  if (!table.empty()) absl::StrAppend(&text, "\n", title, "\n", table.ToString());
}

void AppendSection(absl::string_view title, const std::vector<std::string>& lines,
                   std::string& text) {
  if (!lines.empty()) absl::StrAppend(&text, "\n", title, "\n");
  for (const std::string& line : lines) absl::StrAppend(&text, "  ", line, "\n");
}

}  // namespace ulfd::tools
