// Flags: what is taken, and how what is wrong is named.
// SPDX-License-Identifier: Apache-2.0
#include "base/flags/flag_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace ulfd {
namespace {

using ::testing::ElementsAre;

class FlagSetTest : public ::testing::Test {
 protected:
  FlagSetTest() : flags_("test FILE [flags]", "A test.") {
    flags_.Add("count", "How many.", &count_);
    flags_.Add("name", "A name.", &name_);
    flags_.Add("names", "Some names.", &names_);
    flags_.Add("json", "JSON.", &json_);
    flags_.Add("timeout", "A time.", &timeout_);
  }
  absl::Status Parse(const std::vector<std::string>& args) {
    absl::StatusOr<std::vector<std::string>> positional = flags_.Parse(args, 0, 1);
    if (positional.ok()) positional_ = *std::move(positional);
    return positional.status();
  }
  std::string UsageMessage(const std::vector<std::string>& args) {
    const absl::Status status = Parse(args);
    EXPECT_TRUE(IsUsageError(status)) << status;
    return std::string(status.message());
  }

  FlagSet flags_;
  int64_t count_ = 7;
  std::string name_;
  std::vector<std::string> names_;
  bool json_ = false;
  absl::Duration timeout_ = absl::Seconds(1);
  std::vector<std::string> positional_;
};

TEST_F(FlagSetTest, TakesEveryFormAndLeavesDefaults) {
  ASSERT_TRUE(Parse({"--name=a=b", "file", "--names", "x,y", "--json"}).ok());
  EXPECT_EQ(count_, 7);
  EXPECT_EQ(name_, "a=b");
  EXPECT_THAT(names_, ElementsAre("x", "y"));
  EXPECT_TRUE(json_);
  EXPECT_THAT(positional_, ElementsAre("file"));
  EXPECT_TRUE(flags_.IsSet("name"));
  EXPECT_FALSE(flags_.IsSet("count"));
}

TEST_F(FlagSetTest, ReadsNumbersAndDurations) {
  ASSERT_TRUE(Parse({"--count=-3", "--timeout=250ms"}).ok());
  EXPECT_EQ(count_, -3);
  EXPECT_EQ(timeout_, absl::Milliseconds(250));
}

TEST_F(FlagSetTest, NoPrefixTurnsABooleanOff) {
  json_ = true;
  ASSERT_TRUE(Parse({"--nojson"}).ok());
  EXPECT_FALSE(json_);
}

TEST_F(FlagSetTest, EverythingAfterTwoDashesIsPositional) {
  ASSERT_TRUE(Parse({"--", "--json"}).ok());
  EXPECT_THAT(positional_, ElementsAre("--json"));
  EXPECT_FALSE(json_);
}

TEST_F(FlagSetTest, HelpStopsParsing) {
  EXPECT_TRUE(IsHelpPrinted(Parse({"--help", "--nonsense"})));
  EXPECT_FALSE(IsHelpPrinted(Parse({"--nonsense"})));
}

TEST_F(FlagSetTest, NamesWhatIsWrong) {
  EXPECT_EQ(UsageMessage({"--cuont=1"}), "unknown flag --cuont; did you mean \"count\"?");
}
TEST_F(FlagSetTest, RefusesNoPrefixOfAValueFlag) {
  EXPECT_EQ(UsageMessage({"--nocount"}), "unknown flag --nocount; did you mean \"count\"?");
}
TEST_F(FlagSetTest, RefusesAFlagGivenTwice) {
  EXPECT_EQ(UsageMessage({"--count=1", "--count=2"}), "flag --count is given twice");
}
TEST_F(FlagSetTest, RefusesAMissingValue) {
  EXPECT_EQ(UsageMessage({"--name"}), "flag --name wants a value");
  EXPECT_EQ(UsageMessage({"--name", "--json"}), "flag --name wants a value");
  EXPECT_TRUE(Parse({"--name=--json", "--count", "-3"}).ok());
  EXPECT_EQ(name_, "--json");
  EXPECT_EQ(count_, -3);
}
TEST_F(FlagSetTest, RefusesAValueOfTheWrongType) {
  for (const char* text : {"many", "+5", " 5", "5 ", "010", "0x1", "1.0", "", "-0"}) {
    EXPECT_EQ(UsageMessage({absl::StrCat("--count=", text)}),
              absl::StrCat("--count: \"", text, "\", want a whole number"));
  }
  EXPECT_EQ(UsageMessage({"--json=maybe"}), "--json: \"maybe\", want true or false");
  EXPECT_EQ(UsageMessage({"--timeout=5"}),
            "--timeout: \"5\", want a time such as 250ms, 10s or 2h");
}
TEST_F(FlagSetTest, RefusesAValueOutOfRange) {
  double share = 0.5;
  int64_t rows = 20;
  absl::Duration wait = absl::Seconds(1);
  flags_.Add("share", "A share.", &share, 0, 1);
  flags_.Add("rows", "Rows.", &rows, 0);
  flags_.Add("wait", "A wait.", &wait, absl::Milliseconds(1), absl::Hours(1));
  EXPECT_EQ(UsageMessage({"--share=1.5"}), "--share: 1.5, want 0 to 1");
  EXPECT_EQ(UsageMessage({"--share=half"}), "--share: \"half\", want a number, 0 to 1");
  EXPECT_EQ(UsageMessage({"--share=nan"}), "--share: nan, want 0 to 1");
  EXPECT_EQ(UsageMessage({"--rows", "-1"}), "--rows: -1, want 0 or more");
  EXPECT_EQ(UsageMessage({"--wait=0"}), "--wait: 0, want 1ms to 1h");
  EXPECT_TRUE(Parse({"--share=1", "--rows=0", "--wait=1h"}).ok());
}
TEST_F(FlagSetTest, RefusesWhatDoesNotApply) {
  ASSERT_TRUE(Parse({"--name=x"}).ok());
  EXPECT_TRUE(flags_.Only(true, "builds", {"count", "name"}).ok());
  EXPECT_TRUE(flags_.Only(false, "builds", {"count"}).ok());
  EXPECT_EQ(flags_.Only(false, "builds", {"count", "name"}), UsageError("--name: only for builds"));
}
TEST_F(FlagSetTest, RefusesAnEmptyArgument) {
  EXPECT_EQ(UsageMessage({""}), "an argument is empty");
}
TEST_F(FlagSetTest, RefusesSurplusArguments) {
  EXPECT_EQ(UsageMessage({"a", "b"}), "unexpected argument \"b\"");
}

TEST(UsageErrorTest, IsTellable) {
  EXPECT_TRUE(IsUsageError(UsageError("x")));
  EXPECT_FALSE(IsUsageError(absl::InvalidArgumentError("x")));
}

}  // namespace
}  // namespace ulfd
