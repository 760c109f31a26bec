// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/text_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/embedding/open_tables.h"
#include "engine/embedding/table.h"
#include "engine/embedding/table_builder.h"
#include "engine/weights/digest.h"

namespace ulfd::engine {
namespace {

constexpr size_t kChunkBytes = size_t{4} << 20;
constexpr size_t kMaxLineBytes = size_t{1} << 20;

// Skips a leading + if a number without a sign of its own follows (std::from_chars takes none).
const char* SkipPlus(const char* p, const char* end) {
  return end - p > 1 && *p == '+' && p[1] != '-' && p[1] != '+' ? p + 1 : p;
}

// Parses the whole of `field`; false if it is not a number or not finite.
bool ParseFloat(absl::string_view field, float& value) {
  const char* end = field.data() + field.size();
  const char* begin = SkipPlus(field.data(), end);
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (stop != end || begin == end) return false;
  if (error ==
      std::errc::result_out_of_range) {  // Too small becomes 0 or subnormal; too large is bad.
    value = std::strtof(std::string(begin, end).c_str(), nullptr);
  } else if (error != std::errc()) {
    return false;
  }
  return std::isfinite(value);
}

// Powers of ten that are exact.
constexpr float kFloatPowers[] = {1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f,
                                  1e6f, 1e7f, 1e8f, 1e9f, 1e10f};
constexpr double kDoublePowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,
                                    1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19};
constexpr size_t kMostDigits = 19;  // Fit 64 bits.

// digits / 10^decimals, correctly rounded, or false where that takes more than one rounding.
bool Scale(uint64_t digits, size_t decimals, float& value) {
  if (digits <= (uint64_t{1} << 24) && decimals < std::size(kFloatPowers)) {
    value = static_cast<float>(digits) / kFloatPowers[decimals];
    return true;
  }
  if (digits > (uint64_t{1} << 53)) return false;
  const double quotient = static_cast<double>(digits) / kDoublePowers[decimals];
  if (quotient < std::numeric_limits<float>::min()) return false;  // Subnormal.
  // The quotient is rounded once.  Rounding it again to float is right unless it is halfway between
  // two floats and the true value is not.
  constexpr uint64_t kDropped = (uint64_t{1} << 29) - 1, kHalf = uint64_t{1} << 28;
  uint64_t bits;
  std::memcpy(&bits, &quotient, sizeof bits);
  if ((bits & kDropped) == kHalf) return false;
  value = static_cast<float>(quotient);
  return true;
}

// Parses "[-]digits[.digits]" at `p`, as %f and most of %g and repr write; returns where it ends,
// or nullptr for numbers of other forms or with too many digits and for what is none.
const char* ParseDecimal(const char* p, const char* end, float& value) {
  const bool negative = p < end && *p == '-';
  if (negative) ++p;
  uint64_t digits = 0;
  const char* begin = p;
  for (; p < end && static_cast<unsigned char>(*p - '0') < 10; ++p) {
    digits = digits * 10 + static_cast<unsigned char>(*p - '0');
  }
  auto count = static_cast<size_t>(p - begin);
  size_t decimals = 0;
  if (p < end && *p == '.') {
    begin = ++p;
    for (; p < end && static_cast<unsigned char>(*p - '0') < 10; ++p) {
      digits = digits * 10 + static_cast<unsigned char>(*p - '0');
    }
    decimals = static_cast<size_t>(p - begin);
    count += decimals;
  }
  if (count == 0 || count > kMostDigits || !Scale(digits, decimals, value)) return nullptr;
  if (negative) value = -value;
  return p;
}

bool ParseId(absl::string_view field, int64_t& id) {
  const char* end = field.data() + field.size();
  const char* begin = SkipPlus(field.data(), end);
  const auto [stop, error] = std::from_chars(begin, end, id);
  return error == std::errc() && stop == end;
}

bool BeginsAsANumber(absl::string_view line) {
  line = absl::StripLeadingAsciiWhitespace(line);
  absl::ConsumePrefix(&line, "\"");
  return !line.empty() && (absl::ascii_isdigit(static_cast<unsigned char>(line[0])) ||
                           line[0] == '-' || line[0] == '+');
}

class TextTableReader {
 public:
  TextTableReader(const std::string& path, const TextTableOptions& options, RowSink& sink)
      : path_(path), options_(options), sink_(sink) {}

  absl::StatusOr<int64_t> Read() {
    RETURN_IF_ERROR(ReadLines());
    if (dim_ > 0) return skipped_lines_;
    return InvalidArgument(path_, ": no rows, want at least one (", skipped_lines_,
                           " lines skipped)");
  }

 private:
  absl::Status ReadLines() {
    ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path_));
    // One byte more than a small file tells whether it grew.
    std::vector<char> buffer(std::min(kChunkBytes, static_cast<size_t>(file.size()) + 1));
    size_t begin = 0, end = 0;
    int64_t total = 0;
    bool at_end = false;
    while (true) {
      const char* from = buffer.data() + begin;
      const auto* newline = static_cast<const char*>(std::memchr(from, '\n', end - begin));
      if (newline != nullptr || (at_end && begin < end)) {
        const size_t length =
            newline != nullptr ? static_cast<size_t>(newline - from) : end - begin;
        RETURN_IF_ERROR(AddLine(absl::string_view(from, length)));
        begin += length + (newline != nullptr ? 1 : 0);
        continue;
      }
      if (at_end) break;
      RETURN_IF_ERROR(LoadScope::Check());
      if (end - begin > kMaxLineBytes) {
        return InvalidArgument(path_, ":", line_ + 1, ": line of more than ", kMaxLineBytes,
                               " bytes");
      }
      std::memmove(buffer.data(), from, end - begin);
      end -= begin;
      begin = 0;
      ASSIGN_OR_RETURN(const size_t got, file.Read(buffer.data() + end, buffer.size() - end));
      at_end = got == 0;
      if (total == 0) EstimateRows(absl::string_view(buffer.data(), got), file.size());
      end += got;
      total += static_cast<int64_t>(got);
    }
    if (total == file.size()) return absl::OkStatus();
    return Unavailable(path_, ": changed while it was read");
  }

  void EstimateRows(absl::string_view chunk, int64_t file_bytes) {
    const auto lines = static_cast<double>(std::count(chunk.begin(), chunk.end(), '\n') + 1);
    const double share = static_cast<double>(file_bytes) / std::max<double>(1, chunk.size());
    estimated_rows_ = static_cast<size_t>(lines * std::max(1.0, share * 1.01));
  }

  absl::Status AddLine(absl::string_view line) {
    ++line_;
    // Spreadsheets begin files so; the first row must not be taken for names of columns.
    if (line_ == 1 && options_.csv) absl::ConsumePrefix(&line, "\xef\xbb\xbf");
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) {  // Fine at the end of the file, bad before another line.
      ++empty_lines_;
      return absl::OkStatus();
    }
    if (empty_lines_ > 0) {
      RETURN_IF_ERROR(BadLine(line_ - empty_lines_, "empty line"));
      skipped_lines_ += empty_lines_ - 1;  // BadLine has counted one.
      empty_lines_ = 0;
    }
    if (line_ == 1 && options_.csv && !BeginsAsANumber(line)) return absl::OkStatus();
    std::string problem;
    RETURN_IF_ERROR(AddRow(line, problem));
    return problem.empty() ? absl::OkStatus() : BadLine(line_, problem);
  }

  absl::Status BadLine(int64_t line, const std::string& text) {
    if (!options_.skip_bad_lines) {
      return InvalidArgument(path_, ":", line, ": ", text);
    }
    ++skipped_lines_;
    return absl::OkStatus();
  }

  absl::string_view Field(absl::string_view field) const {
    if (!options_.csv) return field;
    field = absl::StripAsciiWhitespace(field);
    if (field.size() < 2 || field.front() != '"' || field.back() != '"') return field;
    return field.substr(1, field.size() - 2);
  }

  // Leaves in `problem` what is wrong with the line, if anything is.
  absl::Status AddRow(absl::string_view line, std::string& problem) {
    const size_t comma = std::min(line.find(','), line.size());
    int64_t id = 0;
    if (!ParseId(Field(line.substr(0, comma)), id)) {
      problem = absl::StrCat("id ", Quote(line.substr(0, comma)), " is not a 64-bit integer");
      return absl::OkStatus();
    }
    // From the comma on: one before every value.
    const absl::string_view values = line.substr(comma);
    if (dim_ == 0) {
      const auto count = std::count(values.begin(), values.end(), ',');
      if (count == 0) {
        problem = "no values, want at least one";
        return absl::OkStatus();
      }
      std::vector<float> row(static_cast<size_t>(count));
      if (!ParseRow(values, count, row.data())) {
        problem = WhatIsWrong(values, count);
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(Annotate(sink_.Begin(count, static_cast<int64_t>(estimated_rows_)), path_));
      dim_ = count;
    }
    ASSIGN_OR_RETURN(float* const row, Annotate(sink_.NextRow(), path_));
    if (ParseRow(values, dim_, row)) return Annotate(sink_.Commit(id), path_);
    problem = WhatIsWrong(values, dim_);
    return absl::OkStatus();
  }

  // Parses ",v0,v1,..." of `dim` values; false if it is anything else.
  bool ParseRow(absl::string_view values, int64_t dim, float* row) const {
    const char* p = values.data();
    const char* end = p + values.size();
    for (int64_t column = 0; column < dim; ++column) {
      if (p == end || *p != ',') return false;
      const char* begin = p + 1;
      p = ParseDecimal(begin, end, row[column]);
      if (p != nullptr && (p == end || *p == ',')) continue;
      p = std::find(begin, end, ',');
      const absl::string_view field(begin, static_cast<size_t>(p - begin));
      if (!ParseFloat(Field(field), row[column])) {
        return false;
      }
    }
    return p == end;
  }

  // Of values that ParseRow refused.
  std::string WhatIsWrong(absl::string_view values, int64_t dim) const {
    const auto count = std::count(values.begin(), values.end(), ',');
    if (count != dim) return absl::StrCat(count, " values, want ", dim);
    float ignored = 0;
    for (int64_t column = 0;; ++column) {  // One of them is bad.
      const absl::string_view rest = values.substr(1);
      const absl::string_view field = rest.substr(0, rest.find(','));
      if (column + 1 == dim || !ParseFloat(Field(field), ignored)) {
        return absl::StrCat("value ", column, " ", Quote(field), " is not a finite float32 number");
      }
      values = rest.substr(field.size());
    }
  }

  const std::string& path_;
  const TextTableOptions options_;
  RowSink& sink_;
  int64_t dim_ = 0;  // Once the first good row gives it.
  int64_t skipped_lines_ = 0;
  int64_t line_ = 0;         // Of the last line read, from 1.
  int64_t empty_lines_ = 0;  // Just before it.
  size_t estimated_rows_ = 0;
};

// Rows that a TableBuilder takes.
class BuilderSink final : public RowSink {
 public:
  absl::Status Begin(int64_t dim, int64_t about_rows) override {
    builder_.emplace(dim);
    return builder_->Reserve(about_rows);
  }
  absl::StatusOr<float*> NextRow() override { return builder_->NextRow(); }
  absl::Status Commit(int64_t id) override {
    builder_->Commit(id);
    return absl::OkStatus();
  }
  TableBuilder& builder() { return *builder_; }

 private:
  std::optional<TableBuilder> builder_;
};

// Row r is on line r + 1, as long as no line is skipped.
absl::Status CheckIds(TableBuilder& builder) {
  const std::optional<TableBuilder::Duplicate> twice = builder.FindDuplicate();
  if (!twice.has_value()) return absl::OkStatus();
  return InvalidArgument(":", twice->row + 1, ": id ", twice->id, " occurs twice, first on line ",
                         twice->first_row + 1);
}

// Tells apart what text tables become.
absl::StatusOr<std::string> DigestOf(const std::string& path, bool skip_bad_lines, bool with_mean) {
  ContentHasher hasher;
  hasher.Add(absl::StrCat("text ", skip_bad_lines, with_mean));
  RETURN_IF_ERROR(hasher.AddFile(path));
  return hasher.Hex();
}

absl::StatusOr<std::shared_ptr<const TableRows>> ReadRows(const std::string& path,
                                                          bool skip_bad_lines, bool with_mean,
                                                          std::string digest) {
  BuilderSink sink;
  ASSIGN_OR_RETURN(int64_t skipped, ReadTextTable(path, {.skip_bad_lines = skip_bad_lines}, sink));
  if (skip_bad_lines) {
    skipped += sink.builder().DropDuplicates();
  } else if (absl::Status status = CheckIds(sink.builder()); !status.ok()) {
    return InvalidArgument(path, status.message());
  }
  sink.builder().SetSkippedLines(skipped);
  sink.builder().SetDigest(std::move(digest));
  return Annotate(sink.builder().Finish(with_mean), path);
}

}  // namespace

absl::StatusOr<int64_t> ReadTextTable(const std::string& path, const TextTableOptions& options,
                                      RowSink& sink) {
  return TextTableReader(path, options, sink).Read();
}

absl::StatusOr<std::unique_ptr<const EmbeddingTable>> EmbeddingTable::LoadText(
    const std::string& name, const std::string& path, const TableOptions& options) {
  const bool with_mean = options.missing_keys == MissingKeys::kMeanRow;
  ASSIGN_OR_RETURN(std::string digest, DigestOf(path, options.skip_bad_lines, with_mean));
  std::shared_ptr<const TableRows> rows = FindOpenTable(digest);
  if (rows == nullptr) {
    ASSIGN_OR_RETURN(rows, ReadRows(path, options.skip_bad_lines, with_mean, std::move(digest)));
    AddOpenTable(rows);
  }
  return Annotate(Make(name, std::move(rows), options), path);
}

}  // namespace ulfd::engine
