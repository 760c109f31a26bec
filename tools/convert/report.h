// What a conversion did with every node of the source model: for people, on standard output and in
// conversion_report.txt.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_REPORT_H_
#define ULFD_TOOLS_CONVERT_REPORT_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/tensor/tensor.h"

namespace ulfd::convert {

// One node of the source model and what became of it.
struct ReportRow {
  std::string node;                 // Its name in the source.
  std::string type;                 // Its type in the source.
  std::vector<std::string> layers;  // Types of the layers made, in order; empty: none was needed.
  std::string note;                 // Why it looks the way it does; may be empty.
};

struct Report {
  std::string source;  // The file that was converted, with its format: "Caffe net lenet.prototxt".
  std::vector<ReportRow> rows;
  // One line per input of the converted model: those with one row, and those with a row per ad.
  std::vector<std::string> user_inputs, ad_inputs;
  std::vector<std::string> outputs;  // One line per output.
  std::vector<std::string> notes;    // What concerns the model as a whole.

  // Adds the line to the user's or to the ads' inputs.
  void AddInput(engine::Level level, std::string line) {
    (level == engine::Level::kUser ? user_inputs : ad_inputs).push_back(std::move(line));
  }
  std::string ToString() const;
};

// Everything that keeps a model from being converted, collected so that one run tells all of it.
class Problems {
 public:
  void Add(absl::string_view node, absl::string_view type, absl::string_view reason);
  bool empty() const { return lines_.empty(); }
  // OK without problems.  UNIMPLEMENTED otherwise: a headline with the count, then a line each.
  absl::Status ToStatus(absl::string_view source) const;

 private:
  std::vector<std::string> lines_;
};

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_REPORT_H_
