// What people see of a reply.
// SPDX-License-Identifier: Apache-2.0
#include "tools/client/reply.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

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

TEST(PrintReplyTest, ManyOutputsTakeNoLongerThanTheyAreLong) {
  Reply reply{.title = "m"};
  for (int i = 0; i < 500'000; ++i) reply.outputs.push_back({"o", {1, 1}, {0.5}});
  EXPECT_GT(Printed(reply).size(), 500'000);
}

TEST(PrintReplyTest, RefusesWhatAServerCannotMean) {
  const auto refused = [](const Reply& reply) {
    return PrintReply(reply, {.row_names = {"a", "b"}}).ToString();
  };
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{int64_t{1} << 62, 4},
                                            {-1, -1},
                                            {int64_t{1} << 31, int64_t{1} << 33}}) {
    Reply reply;
    reply.outputs = {{"click", shape, {}}};
    EXPECT_THAT(refused(reply), HasSubstr("output \"click\": shape ["));
    reply.outputs[0].values = {1};
    EXPECT_THAT(refused(reply), HasSubstr("output \"click\": shape ["));
  }
  Reply reply{.indices = {-1}};
  reply.outputs = {{"click", {1, 1}, {0.5}}};
  EXPECT_THAT(refused(reply), HasSubstr("index -1 of a best ad"));
  reply.indices = {INT32_MAX};
  EXPECT_THAT(refused(reply), HasSubstr("2 lines for 2147483648 rows"));
}

}  // namespace
}  // namespace ulfd::tools
