// How far the scores of one model are from those of another.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_COMPARE_DIFFERENCES_H_
#define ULFD_TOOLS_COMPARE_DIFFERENCES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace ulfd::tools {

// Of one request.
struct RequestScores {
  std::vector<float> values;   // Every element of every float output.
  std::vector<float> ranking;  // The score of each ad.
  int64_t top_k = 0;           // How many of the best its caller got; 0: all.
};

struct Differences {
  double max = 0, mean = 0;  // |found - wanted| / max(1, |wanted|) of any value, as golden checks.
  double rank = 1;           // Spearman's correlation of the ads' order; mean over the requests.
  double top_k = 1;          // Share of the k best ads that stay among the k best; the least.
  // The area under the ROC curve of all ads of all requests, with labels: as found, and as wanted.
  std::optional<double> auc, wanted_auc;
};

// REQUIRES: the same requests on both sides, at least one, all numbers finite.  `labels`: of the
// ads of all requests in order, or none.  `k`: of the best of requests whose `wanted` has no top_k.
Differences Compare(absl::Span<const RequestScores> wanted, absl::Span<const RequestScores> found,
                    int64_t k, absl::Span<const float> labels);

// Of ranks where equal values share one; 1 if either side is constant.
double RankCorrelation(absl::Span<const float> a, absl::Span<const float> b);
// The chance that an ad of label 1 scores higher than one of label 0; nothing without both kinds.
std::optional<double> AreaUnderCurve(absl::Span<const float> scores,
                                     absl::Span<const float> labels);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_COMPARE_DIFFERENCES_H_
