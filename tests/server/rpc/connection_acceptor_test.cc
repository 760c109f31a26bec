// The limit of connections.
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_acceptor.h"

#include <grpc/support/alloc.h>
#include <grpc/support/string_util.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/rpc/grpc_memory.h"
#include "tests/testing/loopback.h"

namespace ulfd::server {
namespace {

class ConnectionAcceptorTest : public ::testing::Test {
 protected:
  void Start(
      int max_connections, std::function<void()> before_hand = [] {},
      const AcceptorOptions& others = {}) {
    auto socket = ListenOn("127.0.0.1", 0, "tests");
    ASSERT_TRUE(socket.ok()) << socket.status();
    port_ = socket->port;
    AcceptorOptions options = others;
    options.max_connections = max_connections;
    acceptor_ = std::make_unique<ConnectionAcceptor>(
        *std::move(socket), options,
        [this, before_hand = std::move(before_hand)](int fd) {
          before_hand();
          MutexLock lock(mu_);
          handed_.emplace_back(fd);
        },
        ledger_, logger_);
  }
  FileDescriptor Connect() const { return ConnectTo(port_); }
  static void WaitFor(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(condition());
  }
  // The peer closed it.
  static bool IsClosed(int fd) {
    char byte;
    return recv(fd, &byte, 1, 0) <= 0;
  }

  Logger logger_{LogLevel::kError, LogFormat::kText};
  CallLedger ledger_{CallBudget()};
  int port_ = 0;
  Mutex mu_;
  std::vector<FileDescriptor> handed_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

TEST_F(ConnectionAcceptorTest, ClosesWhatIsTooMuchUntilThereIsRoom) {
  Start(3);
  std::vector<FileDescriptor> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(Connect());
  WaitFor([&] {  // Handed over, too.
    MutexLock lock(mu_);
    return handed_.size() == 3;
  });
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(IsClosed(Connect().get()));
  EXPECT_EQ(acceptor_->Stats().accepted, 3);
  EXPECT_EQ(acceptor_->Stats().over_limit, 5);
  {
    MutexLock lock(mu_);
    handed_.erase(handed_.begin());
  }
  EXPECT_EQ(acceptor_->Stats().open, 2);
  clients.push_back(Connect());
  WaitFor([&] { return acceptor_->Stats().accepted == 4; });
  EXPECT_EQ(acceptor_->Stats().open, 3);
}

TEST_F(ConnectionAcceptorTest, OneAddressLeavesRoomForOthers) {
  Start(20);
  const auto handed = [&] {
    MutexLock lock(mu_);
    return handed_.size();
  };
  std::vector<FileDescriptor> clients;
  for (int i = 0; i < 30; ++i) clients.push_back(ConnectTo(port_, 2));
  WaitFor([&] { return acceptor_->Stats().over_limit == 12; });
  WaitFor([&] { return handed() == 18; });
  for (int i = 0; i < 3; ++i) clients.push_back(Connect());
  WaitFor([&] { return acceptor_->Stats().over_limit == 13; });
  WaitFor([&] { return handed() == 20; });
  {
    MutexLock lock(mu_);
    handed_.clear();
  }
  EXPECT_EQ(acceptor_->Stats().open, 0);
  clients.push_back(ConnectTo(port_, 2));
  WaitFor([&] { return handed() == 1; });
  EXPECT_EQ(acceptor_->Stats().over_limit, 13);
}

TEST_F(ConnectionAcceptorTest, FindsRoomWithoutBeingAsked) {
  Start(2);
  for (int i = 0; i < 50; ++i) {
    const FileDescriptor client = Connect();
    WaitFor([&] {
      MutexLock lock(mu_);
      return handed_.size() == 1;
    });
    // The next socket gets this one's number: it must not be taken for the one that was.
    MutexLock lock(mu_);
    handed_.clear();
  }
  EXPECT_EQ(acceptor_->Stats().open, 0);
  EXPECT_EQ(acceptor_->Stats().accepted, 50);
}

TEST_F(ConnectionAcceptorTest, ListensNoLongerOnceStopped) {
  Start(2);
  const FileDescriptor client = Connect();
  WaitFor([&] {  // What still waits for gRPC when the acceptor stops is closed.
    MutexLock lock(mu_);
    return handed_.size() == 1;
  });
  acceptor_->Stop();
  EXPECT_EQ(Connect().get(), -1);
  EXPECT_EQ(acceptor_->Stats().open, 1) << "what was open stays open";
  acceptor_->Stop();
}

TEST_F(ConnectionAcceptorTest, ClosesWhatHasNoCall) {
  Start(2);
  const FileDescriptor idle = Connect(), busy = Connect();
  WaitFor([&] {
    MutexLock lock(mu_);
    return handed_.size() == 2;
  });
  sockaddr_in name{};
  socklen_t size = sizeof(name);
  ASSERT_EQ(getsockname(busy.get(), reinterpret_cast<sockaddr*>(&name), &size), 0);
  CallLedger::Connection* call =
      ledger_.Begin(absl::StrCat("ipv4:127.0.0.1:", ntohs(name.sin_port)));
  acceptor_->Stop();
  acceptor_->CloseIdle(std::chrono::milliseconds(0));
  EXPECT_TRUE(IsClosed(idle.get()));
  char byte;
  EXPECT_EQ(recv(busy.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  std::thread grpc([&] {
    ledger_.End(call, 0);
    EXPECT_TRUE(IsClosed(busy.get()));
    MutexLock lock(mu_);
    handed_.clear();
  });
  acceptor_->CloseIdle(std::chrono::seconds(20));
  EXPECT_EQ(acceptor_->Stats().open, 0);
  grpc.join();
}

TEST_F(ConnectionAcceptorTest, BeginsHandshakesOnceTheHelloIsThereAndOneByOne) {
  constexpr int kClients = 30;
  Start(100, [] {}, {.handshakes_per_second = 100});
  const auto handed = [&] {
    MutexLock lock(mu_);
    return handed_.size();
  };
  const auto say = [](const FileDescriptor& fd, const std::string& text) {
    EXPECT_EQ(send(fd.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  };
  std::vector<FileDescriptor> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(Connect());
    say(clients.back(), std::string("\x16\x03\x01\x00\x0c\x01\x00\x00\x08seven b", 16));
  }
  WaitFor([&] { return acceptor_->Stats().open == kClients; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(handed(), 0);
  const auto begin = std::chrono::steady_clock::now();
  for (const FileDescriptor& client : clients) say(client, "s");
  WaitFor([&] { return handed() == kClients; });
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(280));
  // What is no hello is handed over as well, who goes is not.
  Connect();
  clients.push_back(Connect());
  say(clients.back(), "GET /");
  WaitFor([&] { return handed() == kClients + 1; });
  WaitFor([&] { return acceptor_->Stats().open == kClients + 1; });
  EXPECT_EQ(handed(), kClients + 1);
}

TEST_F(ConnectionAcceptorTest, ClosesWhoSaysNoHelloInTime) {
  Start(100, [] {},
        {.handshakes_per_second = 100, .handshake_timeout = std::chrono::milliseconds(50)});
  const FileDescriptor client = Connect();
  EXPECT_TRUE(IsClosed(client.get()));
  WaitFor([&] { return acceptor_->Stats().open == 0; });
}

TEST(GrpcBytesTest, CountsWhatTheLibraryAllocates) {
  const int64_t before = GrpcBytesOfThread();
  constexpr int64_t kBytes = 8 << 20;
  char* const copy = gpr_strdup(std::string(kBytes, 'x').c_str());
  EXPECT_NEAR(static_cast<double>(GrpcBytesOfThread() - before), kBytes, 1 << 20);
  std::thread([] { EXPECT_EQ(GrpcBytesOfThread(), 0); }).join();
  gpr_free(copy);
  EXPECT_EQ(GrpcBytesOfThread(), before);
}

TEST_F(ConnectionAcceptorTest, ClosesOneWhenNoDescriptorIsLeft) {
  Start(2);
  const FileDescriptor client = Connect();
  WaitFor([&] {
    MutexLock lock(mu_);
    return handed_.size() == 1;
  });
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  ASSERT_EQ(getsockname(client.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 64, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<FileDescriptor> all;
  do {
    all.emplace_back(dup(client.get()));
  } while (all.back().get() >= 0);
  acceptor_->Close(absl::StrCat("ipv4:127.0.0.1:", ntohs(own.sin_port)), "calls");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(acceptor_->Stats().closed["calls"], 1);
  EXPECT_TRUE(IsClosed(client.get()));
}

TEST_F(ConnectionAcceptorTest, HandsOverNobodyWhoHasLeft) {
  std::atomic<bool> busy{true};
  Start(10, [&] {
    while (busy) std::this_thread::yield();
  });
  const FileDescriptor first = Connect();
  FileDescriptor gone = Connect(), reset = Connect();
  const FileDescriptor last = Connect();
  WaitFor([&] { return acceptor_->Stats().accepted == 4; });
  constexpr linger kAtOnce{.l_onoff = 1, .l_linger = 0};
  setsockopt(reset.get(), SOL_SOCKET, SO_LINGER, &kAtOnce, sizeof(kAtOnce));
  gone = FileDescriptor();
  reset = FileDescriptor();
  busy = false;
  const auto handed = [&] {
    MutexLock lock(mu_);
    return handed_.size();
  };
  WaitFor([&] { return handed() == 2; });
  WaitFor([&] { return acceptor_->Stats().open == 2; });
  EXPECT_EQ(handed(), 2);
}

TEST_F(ConnectionAcceptorTest, StopsWhileOneIsHandedOver) {
  std::atomic<bool> busy{true};
  Start(10, [&] {
    while (busy) std::this_thread::yield();
  });
  const FileDescriptor client = Connect(), waiting = Connect();
  WaitFor([&] { return acceptor_->Stats().accepted == 2; });
  std::thread peer([&] {
    EXPECT_TRUE(IsClosed(waiting.get()));
    busy = false;
  });
  acceptor_->Stop();
  peer.join();
}

}  // namespace
}  // namespace ulfd::server
