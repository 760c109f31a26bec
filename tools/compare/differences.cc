// SPDX-License-Identifier: Apache-2.0
#include "tools/compare/differences.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

namespace ulfd::tools {
namespace {

std::vector<size_t> Ascending(absl::Span<const float> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] < values[b]; });
  return order;
}

// From 1 on; the mean of their places for equal values.
std::vector<double> Ranks(absl::Span<const float> values) {
  const std::vector<size_t> order = Ascending(values);
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) {
      ranks[order[i]] = static_cast<double>(begin + end + 1) / 2;
    }
  }
  return ranks;
}

// Share of a's k highest that are among b's k highest.
double TopShare(absl::Span<const float> a, absl::Span<const float> b, int64_t k) {
  const size_t best = std::min(static_cast<size_t>(k), a.size());
  if (best == 0) return 1;
  const auto highest = [&](absl::Span<const float> values) {
    std::vector<size_t> order = Ascending(values);
    order.erase(order.begin(), order.end() - static_cast<std::ptrdiff_t>(best));
    std::sort(order.begin(), order.end());
    return order;
  };
  std::vector<size_t> both;
  const std::vector<size_t> of_a = highest(a), of_b = highest(b);
  std::set_intersection(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(),
                        std::back_inserter(both));
  return static_cast<double>(both.size()) / static_cast<double>(best);
}

std::vector<float> Rankings(absl::Span<const RequestScores> requests) {
  std::vector<float> all;
  for (const RequestScores& one : requests) {
    all.insert(all.end(), one.ranking.begin(), one.ranking.end());
  }
  return all;
}

}  // namespace

double RankCorrelation(absl::Span<const float> a, absl::Span<const float> b) {
  const std::vector<double> x = Ranks(a), y = Ranks(b);
  const double mean = (static_cast<double>(x.size()) + 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx == 0 || yy == 0 ? 1 : xy / std::sqrt(xx * yy);
}

std::optional<double> AreaUnderCurve(absl::Span<const float> scores,
                                     absl::Span<const float> labels) {
  const std::vector<double> ranks = Ranks(scores);
  double of_ones = 0, ones = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] <= 0) continue;
    of_ones += ranks[i];
    ++ones;
  }
  const double zeros = static_cast<double>(labels.size()) - ones;
  if (ones == 0 || zeros == 0) return std::nullopt;
  return (of_ones - ones * (ones + 1) / 2) / (ones * zeros);
}

Differences Compare(absl::Span<const RequestScores> wanted, absl::Span<const RequestScores> found,
                    int64_t k, absl::Span<const float> labels) {
  Differences all;
  double sum = 0, values = 0, ranks = 0;
  for (size_t r = 0; r < wanted.size(); ++r) {
    for (size_t i = 0; i < wanted[r].values.size(); ++i) {
      const double want = wanted[r].values[i];
      const double off = std::abs(found[r].values[i] - want) / std::max(1.0, std::abs(want));
      all.max = std::max(all.max, off);
      sum += off;
      ++values;
    }
    ranks += RankCorrelation(wanted[r].ranking, found[r].ranking);
    const int64_t best = wanted[r].top_k > 0 ? wanted[r].top_k : k;
    all.top_k = std::min(all.top_k, TopShare(wanted[r].ranking, found[r].ranking, best));
  }
  all.mean = sum / std::max(1.0, values);
  all.rank = ranks / static_cast<double>(wanted.size());
  if (!labels.empty()) {
    all.auc = AreaUnderCurve(Rankings(found), labels);
    all.wanted_auc = AreaUnderCurve(Rankings(wanted), labels);
  }
  return all;
}

}  // namespace ulfd::tools
