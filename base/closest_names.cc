// Levenshtein distance over names that are short.
// SPDX-License-Identifier: Apache-2.0
#include "base/closest_names.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace ulfd {
namespace {

// Names longer than that are compared by their beginning: requests choose their length.
constexpr size_t kMaxCompared = 64;
// Of names; more would take milliseconds for an error that a caller may have as often as it likes.
constexpr size_t kMaxKnown = 500;

std::string InQuotes(absl::string_view name) { return absl::StrCat("\"", name, "\""); }

}  // namespace

size_t EditDistance(absl::string_view a, absl::string_view b) {
  a = a.substr(0, kMaxCompared);
  b = b.substr(0, kMaxCompared);
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
}

std::string DidYouMean(absl::string_view wrong, const std::vector<absl::string_view>& known) {
  std::vector<std::pair<size_t, absl::string_view>> close;
  for (absl::string_view name : absl::MakeSpan(known).subspan(0, kMaxKnown)) {
    const size_t distance = EditDistance(wrong, name);
    if (distance <= std::max<size_t>(2, name.size() / 3)) close.emplace_back(distance, name);
  }
  std::stable_sort(close.begin(), close.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (close.size() > 3) close.resize(3);
  std::vector<std::string> quoted;
  quoted.reserve(close.size());
  for (const auto& [distance, name] : close) quoted.push_back(InQuotes(name));
  if (quoted.empty()) return "";
  return absl::StrCat("; did you mean ", absl::StrJoin(quoted, " or "), "?");
}

}  // namespace ulfd
