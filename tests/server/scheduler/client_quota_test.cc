// ClientQuota: each client has its own share, and what ended is forgotten.
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/client_quota.h"

#include <gtest/gtest.h>

#include "server/scheduler/refusal.h"

namespace ulfd::server {
namespace {

TEST(ClientQuota, RefusesBeyondTheLimitOfThatClientOnly) {
  ClientQuota quota(100);
  EXPECT_TRUE(quota.Acquire("a", 60).ok());
  EXPECT_TRUE(quota.Acquire("a", 40).ok());
  const absl::Status refused = quota.Acquire("a", 1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "quota: the client has 100 ads under way and this request has 1, its limit is 100");
  EXPECT_EQ(ReasonOf(refused), ShedReason::kQuota);
  EXPECT_TRUE(RetryAfter(refused).has_value());
  EXPECT_TRUE(quota.Acquire("b", 100).ok());
  quota.Release("a", 40);
  EXPECT_TRUE(quota.Acquire("a", 40).ok());
}

TEST(ClientQuota, TheOnlyCallIsNeverTooLarge) {
  ClientQuota quota(100);
  EXPECT_TRUE(quota.Acquire("a", 2000).ok());
  EXPECT_FALSE(quota.Acquire("a", 1).ok());
}

TEST(ClientQuota, ForgetsClientsWithoutCalls) {
  ClientQuota quota(100);
  for (int i = 0; i < 1000; ++i) {
    const std::string client = std::to_string(i);
    ASSERT_TRUE(quota.Acquire(client, 5).ok());
    EXPECT_EQ(quota.clients(), 1);
    quota.Release(client, 5);
  }
  EXPECT_EQ(quota.clients(), 0);
}

}  // namespace
}  // namespace ulfd::server
