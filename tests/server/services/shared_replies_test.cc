// Replies that many share, and what is kept of them.
// SPDX-License-Identifier: Apache-2.0
#include "server/services/shared_replies.h"

#include <google/protobuf/wrappers.pb.h>
#include <gtest/gtest.h>

#include <string>

namespace ulfd::server {
namespace {

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

}  // namespace
}  // namespace ulfd::server
