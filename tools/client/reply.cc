// SPDX-License-Identifier: Apache-2.0
#include "tools/client/reply.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/tensor/tensor.h"
#include "engine/weights/npy.h"
#include "tools/cli/print.h"
#include "tools/cli/text_table.h"

namespace ulfd::tools {
namespace {

constexpr int64_t kMaxColumns = 8;  // Of one output, in the table.

int64_t Rows(const ReplyOutput& output) { return output.shape.empty() ? 1 : output.shape[0]; }
int64_t Columns(const ReplyOutput& output) {
  int64_t columns = 1;
  for (size_t i = 1; i < output.shape.size(); ++i) columns *= output.shape[i];
  return columns;
}

absl::Status Check(const Reply& reply, const PrintOptions& options) {
  for (const ReplyOutput& output : reply.outputs) {
    const auto bytes = engine::ArrayBytes(output.shape, engine::NumberType::kFloat32);
    if (!bytes.ok() || *bytes != static_cast<int64_t>(output.values.size() * sizeof(float))) {
      return Internal("output \"", output.name, "\": shape ", engine::ToString(output.shape),
                      " but ", output.values.size(), " values");
    }
  }
  for (const int32_t index : reply.indices) {
    if (index < 0) return Internal("index ", index, " of a best ad");
  }
  if (options.row_names.empty() || reply.outputs.empty()) return absl::OkStatus();
  int64_t needed = 0;
  for (const ReplyOutput& output : reply.outputs) needed = std::max(needed, Rows(output));
  for (const int64_t index : reply.indices) needed = std::max(needed, index + 1);
  // The best ads do not tell how many there are, nor does what there is one of per user.
  const auto names = static_cast<int64_t>(options.row_names.size());
  const bool all = reply.indices.empty() && needed > 1;
  if (all ? names != needed : names < needed) {
    return InvalidArgument("--row_names has ", names, " lines for ", needed, " rows");
  }
  return absl::OkStatus();
}

// Of the ads' outputs.  Those of the user, of which there is one row, may come before them.
int64_t AdsIn(const Reply& reply) {
  if (!reply.indices.empty()) return static_cast<int64_t>(reply.indices.size());
  int64_t rows = 0;
  for (const ReplyOutput& output : reply.outputs) rows = std::max(rows, Rows(output));
  return rows;
}

// The ads' outputs side by side.
std::string RowTable(const Reply& reply, const PrintOptions& options,
                     const std::vector<const ReplyOutput*>& outputs) {
  const bool ranked = !reply.indices.empty();
  std::vector<std::string> headings;
  if (ranked) headings.push_back("rank>");
  headings.push_back("ad>");
  if (!options.row_names.empty()) headings.push_back("name");
  for (const ReplyOutput* output : outputs) {
    const int64_t columns = Columns(*output);
    for (int64_t c = 0; c < std::min(columns, kMaxColumns); ++c) {
      headings.push_back(
          absl::StrCat(output->name, columns > 1 ? absl::StrCat("[", c, "]") : "", ">"));
    }
    if (columns > kMaxColumns) headings.push_back(absl::StrCat("... of ", columns, " columns"));
  }
  TextTable table(std::move(headings));
  const int64_t rows = Rows(*outputs[0]);
  const int64_t shown = options.max_rows > 0 ? std::min(rows, options.max_rows) : rows;
  for (int64_t row = 0; row < shown; ++row) {
    const int64_t ad = ranked ? reply.indices[row] : row;
    std::vector<std::string> cells;
    if (ranked) cells.push_back(absl::StrCat(row + 1));
    cells.push_back(absl::StrCat(ad));
    if (!options.row_names.empty()) cells.push_back(options.row_names[ad]);
    for (const ReplyOutput* output : outputs) {
      const int64_t columns = Columns(*output);
      for (int64_t c = 0; c < std::min(columns, kMaxColumns); ++c) {
        cells.push_back(absl::StrFormat("%.6g", output->values[row * columns + c]));
      }
      if (columns > kMaxColumns) cells.push_back("...");
    }
    table.AddRow(std::move(cells));
  }
  std::string text = table.ToString();
  if (shown < rows) {
    absl::StrAppend(&text, "  ... and ", rows - shown, " more (--rows=0 prints all)\n");
  }
  return text;
}

}  // namespace

absl::Status PrintReply(const Reply& reply, const PrintOptions& options) {
  RETURN_IF_ERROR(Check(reply, options));
  std::string text = reply.title;
  if (reply.call_ms > 0) absl::StrAppendFormat(&text, ", %.2f ms", reply.call_ms);
  text += '\n';
  std::vector<const ReplyOutput*> side_by_side, others;
  const int64_t ads = AdsIn(reply);
  for (const ReplyOutput& output : reply.outputs) {
    const bool of_ads = !output.shape.empty() && Rows(output) == ads;
    (of_ads ? side_by_side : others).push_back(&output);
  }
  if (!side_by_side.empty()) text += RowTable(reply, options, side_by_side);
  for (const ReplyOutput* output : others) {
    const size_t shown = std::min<size_t>(output->values.size(), kMaxColumns);
    absl::StrAppend(&text, "  ", output->name, " ", engine::ToString(output->shape), ": ",
                    absl::StrJoin(output->values.begin(), output->values.begin() + shown, " "),
                    shown < output->values.size() ? " ..." : "", "\n");
  }
  if (reply.missing_ids > 0) {
    absl::StrAppend(&text, "  ids that their tables lack: ", reply.missing_ids, "\n");
  }
  if (reply.late_ids > 0) {
    absl::StrAppend(&text, "  ids whose rows were late: ", reply.late_ids, "\n");
  }
  for (const auto& [name, us] : reply.timings) {
    absl::StrAppendFormat(&text, "  %-8s %9.3f ms\n", name, static_cast<double>(us) / 1000);
  }
  Print(stdout, text);
  return absl::OkStatus();
}

absl::Status SaveReply(const Reply& reply, const std::string& path) {
  engine::NpzArrays arrays;
  for (const ReplyOutput& output : reply.outputs) {
    arrays[output.name] = engine::NpyArray::FromFloat32(output.shape, output.values.data());
  }
  if (!reply.indices.empty()) {
    arrays["top_k.indices"] = engine::NpyArray::FromInt32(
        {static_cast<int64_t>(reply.indices.size())}, reply.indices.data());
  }
  return engine::WriteNpz(path, arrays);
}

}  // namespace ulfd::tools
