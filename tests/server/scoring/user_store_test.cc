// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/user_store.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes.h"

namespace ulfd::server {
namespace {

using ::testing::HasSubstr;
using ulfd::v1::PredictRequest;

class UserStoreTest : public ::testing::Test {
 protected:
  static PredictRequest Keyed(const std::string& key, int64_t version) {
    PredictRequest request;
    request.mutable_model()->set_name("m");
    request.set_user_key(key);
    request.set_user_version(version);
    return request;
  }
  static PredictRequest Whole(const std::string& key, int64_t version, const std::string& feature) {
    PredictRequest request = Keyed(key, version);
    request.add_user_features()->set_name(feature);
    return request;
  }
  // The first feature that a request of the key alone is completed with.
  std::string Known(PredictRequest request, const std::string& client = "c") {
    const auto completed = store_.Complete(client, request);
    return completed.ok() ? request.user_features(0).name()
                          : std::string(completed.status().message());
  }
  void Keep(PredictRequest request, const std::string& client = "c") {
    const auto completed = store_.Complete(client, request);
    ASSERT_TRUE(completed.ok()) << completed.status();
    ASSERT_TRUE(store_.Decoded(*completed, request, absl::OkStatus()).ok());
  }
  // Requests with this result.
  int64_t Counted(const std::string& result) const {
    MetricPage page;
    store_.Collect(page);
    const std::string text = page.Text();
    const std::string series = absl::StrCat("ulfd_kept_users_total{result=\"", result, "\"} ");
    const size_t at = text.find(series);
    return at == std::string::npos ? -1 : std::stoll(text.substr(at + series.size()));
  }

  FakeClock clock_;
  UserStore store_{1 << 20, std::chrono::milliseconds(1000), clock_};
};

TEST_F(UserStoreTest, CompletesRequestsOfTheSameClientModelKeyAndVersion) {
  Keep(Whole("k", 1, "first"));
  Keep(Whole("k", 2, "second"));
  EXPECT_EQ(Known(Keyed("k", 1)), "first");
  EXPECT_EQ(Known(Keyed("k", 2)), "second");
  EXPECT_THAT(Known(Keyed("k", 3)),
              HasSubstr("user_key \"k\" version 3: its features are not here, or not any more"));
  EXPECT_THAT(Known(Keyed("k", 1), "other client"), HasSubstr("are not here"));
  PredictRequest other_model = Keyed("k", 1);
  other_model.mutable_model()->set_name("n");
  EXPECT_THAT(Known(other_model), HasSubstr("are not here"));
}

TEST_F(UserStoreTest, FeaturesAreLentNotCopied) {
  Keep(Whole("k", 1, "a name that is not kept in place"));
  PredictRequest one = Keyed("k", 1), other = Keyed("k", 1);
  auto of_one = store_.Complete("c", one), of_other = store_.Complete("c", other);
  ASSERT_TRUE(of_one.ok() && of_other.ok());
  EXPECT_EQ(&one.user_features(0), &other.user_features(0));
  Keep(Whole("k", 1, "another"));
  of_other->lent.reset();
  EXPECT_TRUE(other.user_features().empty());
  EXPECT_EQ(one.user_features(0).name(), "a name that is not kept in place");
}

TEST_F(UserStoreTest, NoPartOfAKeyIsTakenForAnother) {
  Keep(Whole("k", 1, "mine"), "c");
  PredictRequest odd = Keyed("k", 1);
  odd.mutable_model()->set_name("");
  EXPECT_THAT(Known(odd, "c1:m"), HasSubstr("are not here"));
  EXPECT_THAT(Known(Keyed("1:k", 1)), HasSubstr("are not here"));
}

TEST_F(UserStoreTest, TheLastFeaturesUnderAKeyCount) {
  Keep(Whole("k", 1, "first"));
  Keep(Whole("k", 1, "second"));
  EXPECT_EQ(Known(Keyed("k", 1)), "second");
  Keep(Whole("k", 1, std::string(1 << 14, 'f')));  // More than a 64th of all.
  EXPECT_THAT(Known(Keyed("k", 1)), HasSubstr("are not here"));
}

TEST_F(UserStoreTest, FeaturesThatDoNotFitAreAMiss) {
  Keep(Whole("k", 1, "first"));
  PredictRequest request = Keyed("k", 1);
  const auto lent = store_.Complete("c", request);
  ASSERT_TRUE(lent.ok());
  // What no later call may take back is not yet counted.
  EXPECT_EQ(Counted("hit") + Counted("miss"), 0);
  EXPECT_EQ(store_.Decoded(*lent, request, absl::InvalidArgumentError("feature \"u2\": missing")),
            absl::FailedPreconditionError(
                "user_key \"k\" version 1: with the features that are kept of it: feature \"u2\": "
                "missing; send user_features again"));
  EXPECT_EQ(Counted("hit"), 0);
  EXPECT_EQ(Counted("miss"), 1);
  EXPECT_TRUE(store_.Decoded(*lent, request, absl::OkStatus()).ok());
  EXPECT_EQ(Counted("hit"), 1);
}

TEST_F(UserStoreTest, ForgetsWithTime) {
  Keep(Whole("k", 1, "first"));
  clock_.Advance(std::chrono::milliseconds(999));
  EXPECT_EQ(Known(Keyed("k", 1)), "first");
  clock_.Advance(std::chrono::milliseconds(1));
  EXPECT_THAT(Known(Keyed("k", 1)), HasSubstr("not any more"));
  EXPECT_EQ(Counted("miss"), 1);
}

TEST_F(UserStoreTest, AMillionUsersStayWithinTheBytes) {
  for (int i = 0; i < 100000; ++i) Keep(Whole(std::to_string(i), 1, "f"));
  EXPECT_LE(store_.bytes(), 1 << 20);
  EXPECT_EQ(Known(Keyed("99999", 1)), "f");
  EXPECT_THAT(Known(Keyed("0", 1)), HasSubstr("are not here"));
}

TEST_F(UserStoreTest, AClientWithManyUsersPushesOutItsOwn) {
  constexpr int kClients = 16;
  for (int i = 0; i < kClients; ++i) Keep(Whole("k", 1, "f"), absl::StrCat("quiet ", i));
  for (int i = 0; i < 100000; ++i) Keep(Whole(std::to_string(i), 1, "f"), "loud");
  EXPECT_LE(store_.bytes(), 1 << 20);
  int kept = 0;
  for (int i = 0; i < kClients; ++i) kept += Known(Keyed("k", 1), absl::StrCat("quiet ", i)) == "f";
  // One in 64 has a share with the loud one.
  EXPECT_GE(kept, 12);
  EXPECT_EQ(Known(Keyed("99999", 1), "loud"), "f");
}

TEST_F(UserStoreTest, WhatAClientLeftGoesWithTime) {
  Keep(Whole("k", 1, "f"), "here");
  const int64_t one = store_.bytes();
  for (int i = 0; i < 10; ++i) Keep(Whole(std::to_string(i), 1, "f"), "gone");
  clock_.Advance(std::chrono::milliseconds(1000));
  for (int i = 0; i < 1000; ++i) Keep(Whole("k", 1, "f"), "here");
  EXPECT_EQ(store_.bytes(), one);
}

TEST_F(UserStoreTest, RefusesBadKeys) {
  EXPECT_EQ(Known(Keyed("k", 0)), "user_key without a user_version: it is 0, want at least 1");
  EXPECT_EQ(Known(Keyed("k", -1)), "user_key without a user_version: it is -1, want at least 1");
  EXPECT_EQ(Known(Keyed("", 1)), "user_version 1 without a user_key");
  EXPECT_EQ(Known(Keyed(std::string(129, 'k'), 1)), "user_key has 129 bytes, want at most 128");
  EXPECT_THAT(Known(Keyed("\n", 1)), HasSubstr("user_key \"\\n\" version 1"));
}

TEST_F(UserStoreTest, LeavesRequestsWithoutAKeyAlone) {
  PredictRequest request;
  EXPECT_TRUE(store_.Complete("c", request).ok());
  EXPECT_EQ(store_.bytes(), 0);
}

TEST_F(UserStoreTest, KeepsNothingWhereItIsSwitchedOff) {
  UserStore off(0, std::chrono::milliseconds(1000), clock_);
  PredictRequest whole = Whole("k", 1, "f"), keyed = Keyed("k", 1);
  ASSERT_TRUE(off.Decoded(*off.Complete("c", whole), whole, absl::OkStatus()).ok());
  EXPECT_EQ(off.Complete("c", keyed).status().message(),
            "user_key \"k\" version 1: no features are kept here (limits.kept_users_bytes is 0); "
            "send user_features again");
}

}  // namespace
}  // namespace ulfd::server
