// What waits in the kernel to be sent, and what leaves.
// SPDX-License-Identifier: Apache-2.0
#include "server/send_burst.h"

#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "server/listening_socket.h"
#include "tests/testing/loopback.h"

namespace ulfd::server {
namespace {

using std::chrono::steady_clock;

std::atomic<int64_t> gathered{0};

// A connection as the daemon accepts it: small sends go out at once.
class Connection {
 public:
  Connection() {
    auto listening = ListenOn("127.0.0.1", 0, "tests");
    EXPECT_TRUE(listening.ok()) << listening.status();
    client_ = ConnectTo(listening->port);
    EXPECT_GE(client_.get(), 0);
    // The listening socket does not block.
    while (server_.get() < 0)
      server_ = FileDescriptor(accept(listening->fd.get(), nullptr, nullptr));
    const int on = 1;
    EXPECT_EQ(setsockopt(server_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
  }
  void Reply() const {
    char text[] = "reply";
    iovec part = {text, kBytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    EXPECT_EQ(sendmsg(server_.get(), &message, MSG_NOSIGNAL), kBytes);
  }
  // Replies that wait in the kernel to be sent.  Even what is sent at once may be among them for a moment.
  int Waiting() const {
    int bytes = 0;
    EXPECT_EQ(ioctl(server_.get(), SIOCOUTQNSD, &bytes), 0);
    return bytes / kBytes;
  }
  // What nobody flushes leaves after 200 ms.
  bool AllLeft() const {
    const auto end = steady_clock::now() + std::chrono::milliseconds(150);
    while (Waiting() > 0 && steady_clock::now() < end) std::this_thread::yield();
    return Waiting() == 0;
  }
  std::string Receive(int replies) const {
    std::string text(static_cast<size_t>(replies) * kBytes, '\0');
    EXPECT_EQ(recv(client_.get(), text.data(), text.size(), MSG_WAITALL), std::ssize(text));
    return text;
  }
  void ReceiveAll() const {
    char bytes[4096];
    while (recv(client_.get(), bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
    }
  }
  void CloseServer() { server_ = FileDescriptor(); }

 private:
  static constexpr int kBytes = 5;
  FileDescriptor client_, server_;
};

TEST(SendBurst, RepliesAfterTheFirstWait) {
  const Connection connection;
  SendBurst burst(gathered);
  const int64_t before = gathered;
  {
    const SendBurst::Gathering gathering(burst);
    connection.Reply();
    EXPECT_TRUE(connection.AllLeft());
    EXPECT_FALSE(burst.holds());
    for (int i = 1; i <= 3; ++i) {
      connection.Reply();
      EXPECT_EQ(connection.Waiting(), i);
    }
    EXPECT_TRUE(burst.holds());
    burst.Flush();
    EXPECT_TRUE(connection.AllLeft());
    EXPECT_FALSE(burst.holds());
  }
  EXPECT_EQ(gathered - before, 3);
  EXPECT_EQ(connection.Receive(4), "replyreplyreplyreply");
}

TEST(SendBurst, WhatIsSentBesideWaitsForNobody) {
  const Connection connection;
  SendBurst burst(gathered);
  for (int i = 0; i < 5; ++i) connection.Reply();
  EXPECT_TRUE(connection.AllLeft());
  const SendBurst::Gathering gathering(burst);
  connection.Reply();
  std::thread other([&] {
    for (int i = 0; i < 5; ++i) connection.Reply();
  });
  other.join();
  EXPECT_FALSE(burst.holds());
  EXPECT_TRUE(connection.AllLeft());
}

TEST(SendBurst, NoReplyWaitsForLong) {
  const Connection connection;
  SendBurst burst(gathered);
  // A thread that always has something to answer: it flushes only because of the time.
  bool held = false, left = false;
  for (int i = 0; i < 1000000 && !left; ++i) {
    {
      const SendBurst::Gathering gathering(burst);
      connection.Reply();
    }
    left = held && !burst.holds();
    held = burst.holds();
    if (!held || i % 1000 == 0) connection.ReceiveAll();
  }
  EXPECT_TRUE(left);
}

TEST(SendBurst, WhatWaitsLeavesWithTheBurst) {
  const Connection connection;
  {
    SendBurst burst(gathered);
    const SendBurst::Gathering gathering(burst);
    connection.Reply();
    connection.Reply();
    EXPECT_EQ(connection.Waiting(), 1);
  }
  EXPECT_TRUE(connection.AllLeft());
  EXPECT_EQ(connection.Receive(2), "replyreply");
}

TEST(SendBurst, ConnectionsThatTakeTurnsDoNotWait) {
  const Connection a, b;
  SendBurst burst(gathered);
  const SendBurst::Gathering gathering(burst);
  for (int i = 0; i < 5; ++i) {
    a.Reply();
    b.Reply();
  }
  EXPECT_FALSE(burst.holds());
  EXPECT_TRUE(a.AllLeft() && b.AllLeft());
  // Both gather where each has several in a row.
  for (const Connection* connection : {&a, &b}) {
    for (int i = 0; i < 3; ++i) connection->Reply();
    EXPECT_EQ(connection->Waiting(), 2);
  }
  burst.Flush();
  EXPECT_TRUE(a.AllLeft() && b.AllLeft());
}

TEST(SendBurst, WhereNothingGathersItIsTriedEverLessOften) {
  const Connection connection;
  SendBurst burst(gathered);
  constexpr int kReplies = 10000;
  const int64_t before = gathered;
  for (int i = 0; i < kReplies; ++i) {
    {
      const SendBurst::Gathering gathering(burst);
      connection.Reply();
    }
    burst.Flush();  // There is nothing else to do.
    connection.Receive(1);
  }
  EXPECT_GT(gathered - before, kReplies / 100);
  EXPECT_LT(gathered - before, kReplies / 50);
  // After one burst that was worth it, the next one is tried at once.
  const SendBurst::Gathering gathering(burst);
  while (!burst.holds()) connection.Reply();
  for (int i = 0; i < 5; ++i) connection.Reply();
  burst.Flush();
  connection.Reply();
  EXPECT_TRUE(burst.holds());
}

TEST(SendBurst, AConnectionMayCloseMeanwhile) {
  Connection connection;
  SendBurst burst(gathered);
  const SendBurst::Gathering gathering(burst);
  connection.Reply();
  connection.Reply();
  EXPECT_TRUE(burst.holds());
  connection.CloseServer();
  burst.Flush();
  EXPECT_FALSE(burst.holds());
  EXPECT_EQ(connection.Receive(2), "replyreply");
}

}  // namespace
}  // namespace ulfd::server
