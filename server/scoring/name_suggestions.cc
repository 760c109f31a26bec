// Levenshtein distance over names that are short.
// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/name_suggestions.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ulfd::server {
namespace {

// Names longer than that are compared by their beginning: requests choose their length.
constexpr size_t kMaxCompared = 64;
constexpr size_t kMaxListed = 8;

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

std::string Quote(absl::string_view name) { return absl::StrCat("\"", name, "\""); }

}  // namespace

std::string SuggestNames(absl::string_view wrong, const std::vector<absl::string_view>& known) {
  if (known.empty()) return "";
  std::vector<std::pair<size_t, absl::string_view>> close;
  for (absl::string_view name : known) {
    const size_t distance = EditDistance(wrong, name);
    if (distance <= std::max<size_t>(2, name.size() / 3)) close.emplace_back(distance, name);
  }
  std::stable_sort(close.begin(), close.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (close.size() > 3) close.resize(3);
  std::vector<std::string> quoted;
  if (!close.empty()) {
    for (const auto& [distance, name] : close) quoted.push_back(Quote(name));
    return absl::StrCat("; did you mean ", absl::StrJoin(quoted, " or "), "?");
  }
  for (size_t i = 0; i < known.size() && i < kMaxListed; ++i) quoted.push_back(Quote(known[i]));
  return absl::StrCat("; the model has ", absl::StrJoin(quoted, ", "),
                      known.size() > kMaxListed ? ", ..." : "");
}

}  // namespace ulfd::server
