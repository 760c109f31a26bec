// Replies that many share, and what is kept of them; what is said of thousands of models.
// SPDX-License-Identifier: Apache-2.0
#include "server/services/shared_replies.h"

#include <gmock/gmock.h>
#include <google/protobuf/wrappers.pb.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/services/readiness.h"

namespace ulfd::server {
namespace {

using ::testing::HasSubstr;

// What a call does with its reply.
class Call {
 public:
  google::protobuf::StringValue& response() { return response_; }
  grpc::Status Serialize(grpc::ByteBuffer& bytes) {
    const grpc::Slice slice(response_.value());
    bytes = grpc::ByteBuffer(&slice, 1);
    return grpc::Status::OK;
  }
  void Finish(const grpc::Status&) { ADD_FAILURE(); }
  void FinishWith(const grpc::ByteBuffer& reply, bool own) {
    bytes = reply.Length();
    owns = own;
  }

  size_t bytes = 0;
  bool owns = false;

 private:
  google::protobuf::StringValue response_;
};

class SharedRepliesTest : public ::testing::Test {
 protected:
  // Asks for the reply of a time; whether it was made for this call.
  bool Makes(int64_t time) {
    Call call;
    bool made = false;
    replies_.Finish(call, time, "", [&](google::protobuf::StringValue& reply) {
      made = true;
      reply.set_value(std::string(bytes_, 'x'));
    });
    EXPECT_EQ(call.bytes, bytes_);
    EXPECT_EQ(call.owns, made);  // The bytes count for one of those who send them.
    return made;
  }

  size_t bytes_ = 100;
  SharedReplies replies_;
};

TEST_F(SharedRepliesTest, AReplyIsMadeOnce) {
  EXPECT_TRUE(Makes(1));
  EXPECT_FALSE(Makes(1));
  EXPECT_TRUE(Makes(2));
  EXPECT_FALSE(Makes(1));
}

TEST_F(SharedRepliesTest, LargeRepliesAreForgottenSoonerThanSmallOnes) {
  for (int64_t time = 0; time < 100; ++time) EXPECT_TRUE(Makes(time));
  EXPECT_FALSE(Makes(0));
  bytes_ = 3 << 20;
  for (int64_t time = 100; time < 103; ++time) EXPECT_TRUE(Makes(time));
  EXPECT_FALSE(Makes(102));
  EXPECT_FALSE(Makes(101));
  EXPECT_TRUE(Makes(100));
  bytes_ = 30 << 20;
  EXPECT_TRUE(Makes(200));
  EXPECT_FALSE(Makes(200));
}

// Thousands of models, none of which has a version.
class Waiting final : public ModelLookup {
 public:
  absl::StatusOr<ModelHandle> Find(const ModelChoice& choice) const override {
    return absl::UnavailableError(absl::StrCat("model \"", choice.name, "\" waits"));
  }
  std::optional<ShadowTarget> FindShadow(const std::string&) const override { return {}; }
  absl::Status CheckAccess(const ModelChoice&) const override { return {}; }
  std::vector<ModelStatus> List(const std::string&) const override {
    std::vector<ModelStatus> list;
    for (int i = 1000; i < 6000; ++i) list.push_back({.name = absl::StrCat("m", i)});
    return list;
  }
  std::vector<int64_t> VersionsOf(const std::string&) const override { return {}; }
  std::vector<std::string> LabelsOf(const std::string&, int64_t) const override { return {}; }
  bool Ready() const override { return false; }
  void PlansWanted() const override {}
  int64_t generation() const override { return 0; }
  int64_t changes() const override { return 0; }
};

TEST(ReadinessTest, AThousandModelsThatWaitAreNotAllNamed) {
  const Waiting models;
  const std::string why = Readiness(models).WhyNotReady();
  EXPECT_THAT(why, HasSubstr("not loaded: model \"m1000\" waits\nnot loaded: model \"m1001\""));
  EXPECT_THAT(why, HasSubstr("\nand more"));
  EXPECT_LT(why.size(), 5000u);
}

}  // namespace
}  // namespace ulfd::server
