// Distances between scores, by hand.
// SPDX-License-Identifier: Apache-2.0
#include "tools/compare/differences.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace ulfd::tools {
namespace {

TEST(Differences, OfValuesRanksAndTheBest) {
  const std::vector<RequestScores> wanted = {{{1, 2, 3, 40}, {1, 2, 3, 40}}, {{0.5}, {0.5}}};
  const std::vector<RequestScores> found = {{{1, 2.5, 2.25, 44}, {1, 2.5, 2.25, 44}},
                                            {{0.25}, {0.25}}};
  const Differences d = Compare(wanted, found, 2, {});
  EXPECT_DOUBLE_EQ(d.max, 0.25);  // 0.5 of 2, 0.75 of 3, 4 of 40, 0.25 of 1.
  EXPECT_DOUBLE_EQ(d.mean, (0 + 0.25 + 0.25 + 0.1 + 0.25) / 5);
  // Ranks 1 3 2 4: 1 - 6 * 2 / (4 * 15); a single ad is always in order.
  EXPECT_DOUBLE_EQ(d.rank, (0.8 + 1) / 2);
  EXPECT_DOUBLE_EQ(d.top_k, 0.5);  // The third is no longer among the best two.
  EXPECT_FALSE(d.auc.has_value());
}

TEST(Differences, OfTheBestThatTheCallerGot) {
  const std::vector<RequestScores> wanted = {{{}, {1, 2, 3, 4}, 1}}, found = {{{}, {1, 3, 2, 4}}};
  EXPECT_DOUBLE_EQ(Compare(wanted, found, 2, {}).top_k, 1);
}

TEST(Differences, EqualRanksAreShared) {
  EXPECT_DOUBLE_EQ(RankCorrelation(std::vector<float>{1, 2, 3}, std::vector<float>{3, 2, 1}), -1);
  // Ranks 1 2.5 2.5 against 1 2 3.
  EXPECT_NEAR(RankCorrelation(std::vector<float>{0, 7, 7}, std::vector<float>{1, 2, 3}),
              1.5 / std::sqrt(1.5 * 2), 1e-12);
  EXPECT_DOUBLE_EQ(RankCorrelation(std::vector<float>{7, 7}, std::vector<float>{1, 2}), 1);
}

TEST(Differences, AucIsTheChanceToBeAbove) {
  // Of six pairs (1, 0): 0.9 beats three, 0.4 beats one, ties with one.
  const std::vector<float> scores = {0.9f, 0.1f, 0.4f, 0.4f, 0.6f}, labels = {1, 0, 1, 0, 0};
  EXPECT_DOUBLE_EQ(*AreaUnderCurve(scores, labels), (3 + 1 + 0.5) / 6);
  EXPECT_FALSE(AreaUnderCurve(scores, {1, 1, 1, 1, 1}).has_value());
  const Differences d =
      Compare(std::vector<RequestScores>{{scores, scores}},
              std::vector<RequestScores>{{scores, {0.3f, 0.1f, 0.4f, 0.4f, 0.6f}}}, 5, labels);
  EXPECT_DOUBLE_EQ(*d.wanted_auc, 4.5 / 6);
  EXPECT_DOUBLE_EQ(*d.auc, (1 + 1.5) / 6);
}

}  // namespace
}  // namespace ulfd::tools
