// EmbeddingTable::LoadText: the parser of XDL text tables.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/embedding/table.h"
#include "engine/status_macros.h"
#include "engine/weights/file.h"

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

bool ParseId(absl::string_view field, int64_t& id) {
  const char* end = field.data() + field.size();
  const char* begin = SkipPlus(field.data(), end);
  const auto [stop, error] = std::from_chars(begin, end, id);
  return error == std::errc() && stop == end;
}

}  // namespace

class TextTableLoader {
 public:
  TextTableLoader(const std::string& path, const TableOptions& options, EmbeddingTable& table)
      : path_(path), options_(options), table_(table) {}

  absl::Status Load() {
    RETURN_IF_ERROR(ReadLines());
    if (table_.rows_ == 0) {
      return absl::InvalidArgumentError(absl::StrCat(path_, ": no rows, want at least one (",
                                                     table_.skipped_lines_, " lines skipped)"));
    }
    return Finish();
  }

 private:
  // What a line turned out to be; `text` says what is wrong with it.
  struct Problem {
    bool found = false;
    std::string text;
  };

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
      if (end - begin > kMaxLineBytes) {
        return absl::InvalidArgumentError(
            absl::StrCat(path_, ":", line_ + 1, ": line of more than ", kMaxLineBytes, " bytes"));
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
    return absl::UnavailableError(absl::StrCat(path_, ": changed while it was read"));
  }

  // Index and rows are first made as large as the lines of the first chunk suggest; both grow when
  // that is too little.
  void EstimateRows(absl::string_view chunk, int64_t file_bytes) {
    const auto lines = static_cast<double>(std::count(chunk.begin(), chunk.end(), '\n') + 1);
    const double share = static_cast<double>(file_bytes) / std::max<double>(1, chunk.size());
    estimated_rows_ = static_cast<size_t>(lines * std::max(1.0, share * 1.01));
  }

  absl::Status AddLine(absl::string_view line) {
    ++line_;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) {  // Fine at the end of the file, bad before another line.
      ++empty_lines_;
      return absl::OkStatus();
    }
    if (empty_lines_ > 0) {
      RETURN_IF_ERROR(BadLine(line_ - empty_lines_, "empty line"));
      table_.skipped_lines_ += empty_lines_ - 1;  // BadLine has counted one.
      empty_lines_ = 0;
    }
    Problem problem;
    RETURN_IF_ERROR(AddRow(line, problem));
    return problem.found ? BadLine(line_, problem.text) : absl::OkStatus();
  }

  absl::Status BadLine(int64_t line, const std::string& text) {
    if (!options_.skip_bad_lines) {
      return absl::InvalidArgumentError(absl::StrCat(path_, ":", line, ": ", text));
    }
    ++table_.skipped_lines_;
    return absl::OkStatus();
  }

  absl::Status AddRow(absl::string_view line, Problem& problem) {
    const size_t comma = line.find(',');
    int64_t id = 0;
    if (!ParseId(line.substr(0, comma), id)) {
      problem = {true,
                 absl::StrCat("id ", Quote(line.substr(0, comma)), " is not a 64-bit integer")};
      return absl::OkStatus();
    }
    const absl::string_view values =
        comma == absl::string_view::npos ? absl::string_view() : line.substr(comma + 1);
    const auto count =
        comma == absl::string_view::npos ? 0 : std::count(values.begin(), values.end(), ',') + 1;
    if (table_.dim_ == 0 ? count == 0 : count != table_.dim_) {
      problem = {true, table_.dim_ == 0 ? std::string("no values, want at least one")
                                        : absl::StrCat(count, " values, want ", table_.dim_)};
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(GrowTo(table_.rows_ + 1, count));
    auto* row = static_cast<float*>(table_.memory_.data()) + table_.rows_ * count;
    ParseValues(values, row, problem);
    if (problem.found) return absl::OkStatus();
    const auto wanted = static_cast<uint32_t>(table_.rows_);
    ASSIGN_OR_RETURN(const uint32_t got, table_.index_.Insert(id, wanted));
    if (got != wanted) {  // Row r is on line r + 1, as long as no line is skipped.
      problem = {true, absl::StrCat("id ", id, " occurs twice, first on line ", got + int64_t{1})};
      return absl::OkStatus();
    }
    table_.dim_ = count;
    ++table_.rows_;
    return absl::OkStatus();
  }

  static void ParseValues(absl::string_view values, float* row, Problem& problem) {
    for (size_t column = 0, begin = 0; begin <= values.size(); ++column) {
      const size_t end = std::min(values.find(',', begin), values.size());
      const absl::string_view field = values.substr(begin, end - begin);
      if (!ParseFloat(field, row[column])) {
        problem = {true, absl::StrCat("value ", column, " ", Quote(field),
                                      " is not a finite float32 number")};
        return;
      }
      begin = end + 1;
    }
  }

  absl::Status GrowTo(int64_t rows, int64_t dim) {
    const size_t row_bytes = static_cast<size_t>(dim) * sizeof(float);
    if (static_cast<size_t>(rows) * row_bytes <= table_.memory_.bytes()) return absl::OkStatus();
    if (rows >= int64_t{KeyIndex::kNone}) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path_, ": more than ", KeyIndex::kNone - 1, " rows"));
    }
    const auto now = static_cast<size_t>(rows);
    const size_t wanted = std::max(estimated_rows_, now) + now / 8;
    RETURN_IF_ERROR(Annotate(table_.memory_.Resize(wanted * row_bytes), path_));
    return table_.index_.size() > 0 ? absl::OkStatus()
                                    : Annotate(table_.index_.Reserve(estimated_rows_), path_);
  }

  absl::Status Finish() {
    const size_t used = static_cast<size_t>(table_.rows_ * table_.dim_) * sizeof(float);
    RETURN_IF_ERROR(table_.memory_.Resize(used));
    if (table_.index_.size() < table_.index_.capacity() / 8 * 7) {
      RETURN_IF_ERROR(table_.index_.Reserve(table_.index_.size()));
    }
    table_.missing_keys_ = options_.missing_keys;
    if (options_.missing_keys != MissingKeys::kDefaultRow) return absl::OkStatus();
    table_.missing_row_ = table_.Find(options_.default_id);
    if (table_.missing_row_ != nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": lacks the default id ", options_.default_id));
  }

  const std::string& path_;
  const TableOptions& options_;
  EmbeddingTable& table_;
  int64_t line_ = 0;         // Of the last line read, from 1.
  int64_t empty_lines_ = 0;  // Just before it.
  size_t estimated_rows_ = 0;
};

absl::StatusOr<std::unique_ptr<const EmbeddingTable>> EmbeddingTable::LoadText(
    const std::string& name, const std::string& path, const TableOptions& options) {
  std::unique_ptr<EmbeddingTable> table(new EmbeddingTable());
  table->name_ = name;
  RETURN_IF_ERROR(TextTableLoader(path, options, *table).Load());
  return table;
}

}  // namespace ulfd::engine
