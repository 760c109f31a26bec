// Which connections have to go, told without gRPC: it knows none of these peers, so all of them are
// in their handshake.
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ulfd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ConnectionWatchTest : public ::testing::Test {
 protected:
  // What is said of connections that have sent so much: "peer why".
  static std::vector<std::string> Look(ConnectionWatch& watch,
                                       const std::vector<ConnectionWatch::Connection>& open) {
    std::vector<std::string> said;
    for (const auto& [peer, why] : watch.Look(open)) said.push_back(peer + " " + why);
    return said;
  }

  CallLedger ledger_{CallBudget{}};
};

TEST_F(ConnectionWatchTest, OfHandshakesTheOldestGo) {
  ConnectionWatch watch({.places = 2}, ledger_);
  EXPECT_THAT(Look(watch, {{"z", 10}}), IsEmpty());
  EXPECT_THAT(Look(watch, {{"z", 10}, {"a", 10}}), IsEmpty());
  EXPECT_THAT(Look(watch, {{"z", 10}, {"a", 10}, {"m", 0}}), ElementsAre("z handshakes"));
  // Until it is gone, it is not told again.
  EXPECT_THAT(Look(watch, {{"z", 10}, {"a", 10}, {"m", 0}}), IsEmpty());
  EXPECT_THAT(Look(watch, {{"a", 10}, {"m", 0}, {"b", 0}}), ElementsAre("a handshakes"));
  // The port is used again: another connection.
  EXPECT_THAT(Look(watch, {{"m", 0}, {"b", 0}}), IsEmpty());
  EXPECT_THAT(Look(watch, {{"a", 0}, {"m", 0}, {"b", 0}}), ElementsAre("m handshakes"));
}

TEST_F(ConnectionWatchTest, HandshakesLeavePlacesToNewcomers) {
  ConnectionWatch watch({.places = 16}, ledger_);
  std::vector<ConnectionWatch::Connection> open;
  for (char name = 'a'; name < 'a' + 15; ++name) open.push_back({std::string(1, name), 10});
  EXPECT_THAT(Look(watch, {open[14]}), IsEmpty());
  EXPECT_THAT(Look(watch, open), IsEmpty());
  open.push_back({"p", 0});
  EXPECT_THAT(Look(watch, open), ElementsAre("o handshakes"));
}

TEST_F(ConnectionWatchTest, PlainConnectionsHaveNoHandshake) {
  ConnectionWatch watch({}, ledger_);
  EXPECT_THAT(Look(watch, {{"a", 10}, {"b", 10}, {"c", 10}}), IsEmpty());
}

TEST_F(ConnectionWatchTest, OfSilentBytesTheMostGo) {
  ConnectionWatch watch({.silent_bytes = 100'000}, ledger_);
  EXPECT_THAT(Look(watch, {{"a", 90'000}, {"b", 100'000}, {"c", 80'000}}), ElementsAre("b silent"));
  EXPECT_THAT(Look(watch, {{"a", 100'001}, {"c", 80'000}}), ElementsAre("a silent"));
}

}  // namespace
}  // namespace ulfd::server
