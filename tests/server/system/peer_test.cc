// Who shares what with whom.
// SPDX-License-Identifier: Apache-2.0
#include "server/system/peer.h"

#include <gtest/gtest.h>

#include "server/system/room_share.h"

namespace ulfd::server {
namespace {

TEST(ClientOf, IsTheConnectionOnThisMachine) {
  EXPECT_EQ(ClientOf("ipv4:10.0.0.1:5"), "ipv4:10.0.0.1");
  EXPECT_EQ(ClientOf("ipv6:%5B2001:db8::1%5D:5"), "2001:db8::/64");
  EXPECT_EQ(ClientOf("ipv4:127.0.0.1:5"), "ipv4:127.0.0.1:5");
  EXPECT_EQ(ClientOf("ipv6:%5B::1%5D:5"), "ipv6:%5B::1%5D:5");
}

TEST(AddressOf, IsWithoutThePortAndOfIpv6TheNetwork) {
  EXPECT_EQ(AddressOf("ipv4:1.2.3.4:567"), "ipv4:1.2.3.4");
  EXPECT_EQ(AddressOf("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:567"), "2001:db8:1:2::/64");
  EXPECT_EQ(AddressOf("ipv6:%5B2001:db8:1:2::9%5D:8"), "2001:db8:1:2::/64");
  EXPECT_EQ(AddressOf("ipv6:%5B::ffff:1.2.3.4%5D:567"), "ipv6:%5B::ffff:1.2.3.4%5D");
  EXPECT_EQ(AddressOf("ipv6:%5Bfe80::1%25eth0%5D:567"), "ipv6:%5Bfe80::1%25eth0%5D");
  EXPECT_EQ(AddressOf("1.2.3.4:567"), "1.2.3.4");
  EXPECT_EQ(AddressOf("unix:"), "unix");
}

TEST(SharedRoom, LeavesRoomToOthers) {
  SharedRoom room(1000);
  EXPECT_TRUE(room.Take("a", 800));
  EXPECT_FALSE(room.Take("a", 90)) << "890 is more than eight times 110";
  EXPECT_TRUE(room.Take("a", 80));
  EXPECT_TRUE(room.Take("b", 100));
  EXPECT_FALSE(room.Take("b", 10));
  EXPECT_FALSE(room.Take("c", 21)) << "20 are left";
  room.Release("a", 880);
  EXPECT_TRUE(room.Take("c", 700));
}

TEST(SharedRoom, WhatIsAloneIsNeverTooLarge) {
  SharedRoom room(1000);
  EXPECT_TRUE(room.Take("a", 5000));
  EXPECT_FALSE(room.Take("b", 1));
  room.Release("a", 5000);
  EXPECT_TRUE(room.Take("b", 1));
}

}  // namespace
}  // namespace ulfd::server
