// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/text.h"
#include "tools/cli/text_table.h"

namespace ulfd::convert {
namespace {

void AppendList(absl::string_view heading, const std::vector<std::string>& lines,
                std::string& text) {
  if (lines.empty()) return;
  absl::StrAppend(&text, "\n", heading, "\n");
  for (const std::string& line : lines) absl::StrAppend(&text, "  ", line, "\n");
}

}  // namespace

std::string Report::ToString() const {
  std::string text = absl::StrCat("converted from ", source, "\n");
  AppendList("inputs of the user, one row per request", user_inputs, text);
  AppendList("inputs of the ads, a row each", ad_inputs, text);
  AppendList("outputs", outputs, text);
  AppendList("notes", notes, text);
  tools::TextTable table({"node", "type", "became", "note"});
  for (const ReportRow& row : rows) {
    table.AddRow(
        {row.node, row.type, row.layers.empty() ? "-" : absl::StrJoin(row.layers, " "), row.note});
  }
  absl::StrAppend(&text, "\nnodes\n", table.ToString());
  return text;
}

void Problems::Add(absl::string_view node, absl::string_view type, absl::string_view reason) {
  constexpr size_t kMaxNameBytes = 256;  // Names of a megabyte leave room for the reason.
  lines_.push_back(absl::StrCat("node \"", Printable(node, kMaxNameBytes), "\" (",
                                Printable(type, kMaxNameBytes), "): ", reason));
}

absl::Status Problems::ToStatus(absl::string_view source) const {
  if (lines_.empty()) return absl::OkStatus();
  return Unimplemented(source, ": ", lines_.size(), lines_.size() == 1 ? " node" : " nodes",
                       " cannot be converted; nothing was written\n  ",
                       absl::StrJoin(lines_, "\n  "));
}

}  // namespace ulfd::convert
