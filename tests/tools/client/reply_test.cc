// What people see of a reply.
// SPDX-License-Identifier: Apache-2.0
#include "tools/client/reply.h"

#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ulfd::tools {
namespace {

using ::testing::HasSubstr;

std::string Printed(const Reply& reply) {
  ::testing::internal::CaptureStdout();
  EXPECT_TRUE(PrintReply(reply, {}).ok());
  std::fflush(stdout);
  return ::testing::internal::GetCapturedStdout();
}

TEST(PrintReplyTest, AllOutputsOfTheAdsWhateverComesFirst) {
  Reply reply{.title = "m"};
  reply.outputs = {{"tower", {1, 2}, {0.5, 0.25}},
                   {"click", {9, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9}},
                   {"buy", {9, 1}, {11, 12, 13, 14, 15, 16, 17, 18, 19}}};
  const std::string text = Printed(reply);
  EXPECT_THAT(text, HasSubstr("ad  click  buy\n"));
  EXPECT_THAT(text, HasSubstr(" 8      9   19\n"));
  EXPECT_THAT(text, HasSubstr("tower [1, 2]: 0.5 0.25\n"));
}

TEST(PrintReplyTest, TheBestAdsWithTheirRanks) {
  Reply reply{.title = "m", .indices = {7, 3}};
  reply.outputs = {{"tower", {1, 1}, {0.5}}, {"click", {2, 1}, {9, 8}}};
  const std::string text = Printed(reply);
  EXPECT_THAT(text, HasSubstr("rank  ad  click\n"));
  EXPECT_THAT(text, HasSubstr("   1   7      9\n"));
  EXPECT_THAT(text, HasSubstr("tower [1, 1]: 0.5\n"));
}

}  // namespace
}  // namespace ulfd::tools
