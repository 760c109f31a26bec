// Which connection has to go for what its calls hold.
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/call_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ulfd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kCall = CallLedger::kCallBytes;

class CallLedgerTest : public ::testing::Test {
 protected:
  void Use(const CallBudget& budget) {
    ledger_ = std::make_unique<CallLedger>(budget);
    ledger_->set_close(
        [this](const std::string& peer, const char* why) { closed_.push_back(peer + " " + why); });
  }
  std::unique_ptr<CallLedger> ledger_;
  std::vector<std::string> closed_;
};

TEST_F(CallLedgerTest, ManyCallsOnAConnection) {
  Use({.connection_calls = 3});
  std::vector<CallLedger::Connection*> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(ledger_->Begin("ipv4:1.1.1.1:1"));
  // Those of another one, and those that are over, do not count.
  calls.push_back(ledger_->Begin("ipv4:1.1.1.1:2"));
  ledger_->End(calls[0], 0);
  calls[0] = ledger_->Begin("ipv4:1.1.1.1:1");
  EXPECT_THAT(closed_, IsEmpty());
  calls.push_back(ledger_->Begin("ipv4:1.1.1.1:1"));
  calls.push_back(ledger_->Begin("ipv4:1.1.1.1:1"));
  EXPECT_THAT(closed_, ElementsAre("ipv4:1.1.1.1:1 calls"));  // Once.
  EXPECT_EQ(ledger_->held_bytes(), kCall);
  for (auto* call : calls) ledger_->End(call, 0);
  EXPECT_EQ(ledger_->held_bytes(), 0);
  // The port may be used again.
  calls.clear();
  for (int i = 0; i < 4; ++i) calls.push_back(ledger_->Begin("ipv4:1.1.1.1:1"));
  EXPECT_THAT(closed_, ElementsAre("ipv4:1.1.1.1:1 calls", "ipv4:1.1.1.1:1 calls"));
}

TEST_F(CallLedgerTest, RepliesThatNobodyTakes) {
  Use({.connection_bytes = 10 * kCall});
  auto* alone = ledger_->Begin("ipv4:1.1.1.1:1");
  ledger_->Hold(alone, 50 * kCall);  // A single reply is never too large.
  EXPECT_THAT(closed_, IsEmpty());
  auto* first = ledger_->Begin("ipv4:2.2.2.2:1");
  auto* second = ledger_->Begin("ipv4:2.2.2.2:1");
  ledger_->Hold(first, 8 * kCall);
  EXPECT_THAT(closed_, IsEmpty());
  ledger_->Hold(second, 1);
  EXPECT_THAT(closed_, ElementsAre("ipv4:2.2.2.2:1 unsent"));
  ledger_->End(second, 1);
  ledger_->End(first, 8 * kCall);
  ledger_->End(alone, 50 * kCall);
  EXPECT_EQ(ledger_->held_bytes(), 0);
}

TEST_F(CallLedgerTest, ACallOfAConnectionThatHasToGoIsTold) {
  Use({.connection_calls = 1});
  const auto closing = [&](const std::string& peer) {
    bool is_closing = false;
    ledger_->Begin(peer, &is_closing);
    return is_closing;
  };
  EXPECT_FALSE(closing("ipv4:1.1.1.1:1"));
  EXPECT_TRUE(closing("ipv4:1.1.1.1:1"));
  EXPECT_TRUE(closing("ipv4:1.1.1.1:1"));
  EXPECT_FALSE(closing("ipv4:1.1.1.1:2"));
}

TEST_F(CallLedgerTest, ManyConnectionsOfAnAddress) {
  Use({.caller_bytes = 7 * kCall});
  for (int i = 0; i < 3; ++i) ledger_->Begin("ipv6:%5B::1%5D:1");
  for (int port = 2; port <= 6; ++port) ledger_->Begin("ipv6:%5B::1%5D:" + std::to_string(port));
  // The largest, not the one that passed the limit.
  EXPECT_THAT(closed_, ElementsAre("ipv6:%5B::1%5D:1 unsent"));
}

TEST_F(CallLedgerTest, TheLargestGoesForAllOfThem) {
  Use({.caller_bytes = 100 * kCall, .total_bytes = 10 * kCall});
  for (int i = 0; i < 3; ++i) ledger_->Begin("ipv4:1.1.1.1:1");
  ledger_->Hold(ledger_->Begin("ipv4:2.2.2.2:1"), 5 * kCall);
  for (int i = 0; i < 4; ++i) ledger_->Begin("ipv4:3.3.3.3:" + std::to_string(i));
  EXPECT_THAT(closed_, ElementsAre("ipv4:2.2.2.2:1 unsent"));
  EXPECT_EQ(ledger_->held_bytes(), 7 * kCall);
}

TEST_F(CallLedgerTest, RequestsTogether) {
  Use({.request_bytes = 100});
  auto* call = ledger_->Begin("ipv4:1.1.1.1:1");
  EXPECT_TRUE(ledger_->ReserveRequest(call, 500));  // The only one.
  EXPECT_FALSE(ledger_->ReserveRequest(call, 1));
  ledger_->ReleaseRequest(call, 500);
  EXPECT_TRUE(ledger_->ReserveRequest(call, 60));
  EXPECT_FALSE(ledger_->ReserveRequest(call, 41));
  EXPECT_TRUE(ledger_->ReserveRequest(call, 28));
}

TEST_F(CallLedgerTest, RequestsOfOneAddressLeaveRoomForOthers) {
  Use({.request_bytes = 100 << 20});
  const auto fill = [this](CallLedger::Connection* call) {
    int64_t taken = 0;
    for (int64_t bytes = 16 << 20; bytes >= 1024; bytes /= 2) {
      while (ledger_->ReserveRequest(call, bytes)) taken += bytes;
    }
    return taken >> 20;
  };
  EXPECT_EQ(fill(ledger_->Begin("ipv4:1.1.1.1:1")), 88);
  EXPECT_EQ(fill(ledger_->Begin("ipv4:1.1.1.1:2")), 0) << "it is the same address";
  EXPECT_EQ(fill(ledger_->Begin("ipv4:2.2.2.2:1")), 9);
  // Behind a proxy on this machine there are many.
  EXPECT_EQ(fill(ledger_->Begin("ipv4:127.0.0.1:1")), 1);
  EXPECT_TRUE(ledger_->ReserveRequest(ledger_->Begin("ipv4:127.0.0.1:2"), 64 << 10));
}

TEST_F(CallLedgerTest, RequestsOfAProxyHereGetAllRoomThatNobodyElseWants) {
  Use({.request_bytes = 100 << 20});
  int64_t taken = 0;
  for (int round = 0; round < 1600; ++round) {
    auto* call = ledger_->Begin(absl::StrCat("ipv4:127.0.0.1:", 1 + round % 10));
    if (ledger_->ReserveRequest(call, 64 << 10)) taken += 64 << 10;
  }
  EXPECT_EQ(taken >> 20, 98);
}

TEST_F(CallLedgerTest, WhatIsForgottenIsGone) {
  Use({});
  auto* call = ledger_->Begin("ipv4:1.1.1.1:1");
  EXPECT_EQ(ledger_->CountsOf("ipv4:1.1.1.1:1").under_way, 1);
  ledger_->Forget("ipv4:1.1.1.1:1");
  EXPECT_EQ(ledger_->CountsOf("ipv4:1.1.1.1:1").received, 1);  // Its call goes on.
  ledger_->End(call, 0);
  EXPECT_EQ(ledger_->CountsOf("ipv4:1.1.1.1:1").received, 0);
  EXPECT_EQ(ledger_->held_bytes(), 0);
}

}  // namespace
}  // namespace ulfd::server
