// The state file of operators.
// SPDX-License-Identifier: Apache-2.0
#include "server/config/state_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::server {
namespace {

class StateFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<OperatorStates> Read(const std::string& text) const {
    return ReadStateFile(dir_.Write("state.textproto", text));
  }
  const TempDir dir_;
};

TEST_F(StateFileTest, SaysWhichModelIsThereTwice) {
  EXPECT_EQ(std::string(Read("models { name: \"m\" } models { name: \"m\" }").status().message()),
            dir_.File("state.textproto") + ": model \"m\" is there twice");
}

TEST_F(StateFileTest, TakesTimesThatNoClockCanSay) {
  using Time = std::chrono::system_clock::time_point;
  for (const auto& [seconds, wanted] : {std::pair("9223372036854775807", Time::max()),
                                        {"-9223372036854775808", Time::min()},
                                        {"1700000000", Time(std::chrono::seconds(1700000000))}}) {
    const auto states =
        Read(absl::StrCat("models { name: \"m\" rejected { since { seconds: ", seconds, " } } }"));
    ASSERT_TRUE(states.ok()) << states.status();
    ASSERT_EQ(states->at("m").rejected.size(), 1u);
    EXPECT_EQ(states->at("m").rejected[0].since, wanted) << seconds;
  }
}

TEST_F(StateFileTest, EpochsComeBack) {
  OperatorStates states;
  states["m"].last_epochs = {{1, {0, "a"}}, {2, {7, "b"}}};
  ASSERT_FALSE(states["m"].empty());
  const std::string path = dir_.File("state.textproto");
  ASSERT_TRUE(WriteStateFile(path, states).ok());
  const auto read = ReadStateFile(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->at("m").last_epochs, states["m"].last_epochs);
}

// Else the next start would refuse it.
TEST_F(StateFileTest, WritesNothingThatItWouldNotRead) {
  OperatorStates states;
  states["m"].labels.emplace();
  for (int i = 0; i < 3000; ++i) (*states["m"].labels)[absl::StrCat(std::string(250, 'x'), i)] = 1;
  const std::string path = dir_.File("state.textproto");
  EXPECT_TRUE(WriteStateFile(path, states).ok());
  for (int i = 0; i < 1000; ++i) (*states["m"].labels)[absl::StrCat(std::string(250, 'y'), i)] = 1;
  const absl::Status refused = WriteStateFile(path, states);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  const auto read = ReadStateFile(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->at("m").labels->size(), 3000u);
}

}  // namespace
}  // namespace ulfd::server
