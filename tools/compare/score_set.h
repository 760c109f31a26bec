// Saved requests, and how far the scores that a model gives them are from another's.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_COMPARE_SCORE_SET_H_
#define ULFD_TOOLS_COMPARE_SCORE_SET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/flags/flag_set.h"
#include "engine/runtime/model.h"
#include "engine/weights/npz.h"
#include "tools/cli/text_table.h"
#include "tools/compare/differences.h"

namespace ulfd::tools {

// --requests and what else says which scores are compared.
struct ScoreFlags {
  std::vector<std::string> requests;
  std::string labels, score;
  int64_t column = -1, top_k = 10;

  void AddTo(FlagSet& flags);
};

struct SavedRequest {
  std::string source;  // "a.npz", "0.ulfrec, call 3": for messages.
  engine::NpzArrays inputs;
  std::vector<float> labels;  // Of its ads; empty: none.
  int64_t top_k = 0;          // How many of the best its caller got; 0: all, or it is not known.
};

// The requests, and the scores that others are measured against.
class ScoreSet {
 public:
  // `flags` must outlive it.
  explicit ScoreSet(const ScoreFlags& flags) : flags_(flags) {}

  // Reads the requests and scores them.  INVALID_ARGUMENT for inputs that the model does not
  // have or that hold a NaN or an infinity, for fewer than two requests, for scores that are not
  // finite and for labels that are not one an ad; NOT_FOUND for an output that is not there.
  absl::Status Init(const engine::Model& wanted);
  // How far the scores of `found` are.  INVALID_ARGUMENT where it has other inputs or outputs.
  absl::StatusOr<Differences> Measure(const engine::Model& found);

  // "60 requests, 12000 ads".
  std::string Size() const;
  // A table of one row for each AddRow.
  static TextTable Table(const std::string& title);
  static void AddRow(const std::string& what, const Differences& differences, TextTable& table);

 private:
  absl::StatusOr<std::vector<RequestScores>> Score(const engine::Model& model);
  absl::StatusOr<RequestScores> ScoresOf(const engine::ModelInfo& info,
                                         const engine::RunResult& result) const;

  const ScoreFlags& flags_;
  std::vector<SavedRequest> requests_;
  std::vector<std::string> outputs_;
  size_t score_ = 0;  // Of these.
  std::vector<RequestScores> wanted_;
  std::vector<float> labels_;
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_COMPARE_SCORE_SET_H_
