// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/features/schema.h"

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ulfd::convert {
namespace {

constexpr absl::string_view kHeader = "column,kind,side,vocabulary,length";
constexpr int64_t kMaxFileBytes = 1 << 24;
// Of a length, and of all: as many columns as a row may have.
constexpr int64_t kMaxColumns = 1 << 20;

absl::StatusOr<int64_t> ParseCount(absl::string_view what, absl::string_view text, int64_t none,
                                   int64_t most) {
  if (text.empty()) return none;
  int64_t count = 0;
  if (absl::SimpleAtoi(text, &count) && count >= 1 && count <= most) return count;
  return InvalidArgument(what, " ", Quote(text), ", want a number from 1 to ", most);
}

absl::StatusOr<SchemaField> ParseField(absl::string_view line) {
  std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
  for (absl::string_view& cell : cells) cell = absl::StripAsciiWhitespace(cell);
  constexpr size_t kLeast = 3, kMost = 5;
  if (cells.size() < kLeast || cells.size() > kMost || cells[0].empty() || !IsUtf8(cells[0])) {
    return InvalidArgument(Quote(line), ", want ", kHeader);
  }
  cells.resize(kMost);
  SchemaField field{.name = std::string(cells[0])};
  if (cells[1] != "sparse" && cells[1] != "dense") {
    return InvalidArgument("kind ", Quote(cells[1]), ", want sparse or dense");
  }
  field.sparse = cells[1] == "sparse";
  if (cells[2] != "user" && cells[2] != "ad") {
    return InvalidArgument("side ", Quote(cells[2]), ", want user or ad");
  }
  field.level = cells[2] == "user" ? engine::Level::kUser : engine::Level::kAd;
  constexpr int64_t kMaxIds = int64_t{1} << 31;
  ASSIGN_OR_RETURN(field.vocabulary, ParseCount("vocabulary", cells[3], 0, kMaxIds));
  if (field.vocabulary > 0 && !field.sparse) {
    return InvalidArgument("a vocabulary of a dense column");
  }
  ASSIGN_OR_RETURN(field.length, ParseCount("length", cells[4], 1, kMaxColumns));
  return field;
}

}  // namespace

absl::StatusOr<Schema> ReadSchema(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  Schema schema;
  std::set<std::string> names;
  int64_t next = 0;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::string place = absl::StrCat(path, ":", ++number);
    line = absl::StripAsciiWhitespace(line);
    if (number == 1) {
      if (line == kHeader) continue;
      return InvalidArgument(place, ": ", Quote(line), ", want ", kHeader);
    }
    if (line.empty()) continue;
    ASSIGN_OR_RETURN(SchemaField field, Annotate(ParseField(line), place));
    field.first = next;
    next = field.end();
    if (next > kMaxColumns) {
      return InvalidArgument(place, ": more than ", kMaxColumns, " columns");
    }
    if (!names.insert(field.name).second) {
      return InvalidArgument(place, ": column ", Quote(field.name), " is there twice");
    }
    schema.push_back(std::move(field));
  }
  if (schema.empty()) return InvalidArgument(path, ": no columns");
  return schema;
}

}  // namespace ulfd::convert
