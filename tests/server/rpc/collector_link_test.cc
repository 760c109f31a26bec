// What passes between a collector and gRPC, and what ends it.
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/collector_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/system/listening_socket.h"

namespace ulfd::server {
namespace {

using ::testing::HasSubstr;

class CollectorLinkTest : public ::testing::Test {
 protected:
  CollectorLinkTest() : listening_(ListenOn("127.0.0.1", 0, "tests").value()) {
    link_ = CollectorLink::Connect(absl::StrCat("127.0.0.1:", listening_.port), 1000).value();
    while (collector_.get() < 0) {
      collector_ = FileDescriptor(accept(listening_.fd.get(), nullptr, nullptr));
    }
    grpc_ = FileDescriptor(link_->TakeEnd());
  }
  static void Send(const FileDescriptor& to, const std::string& bytes) {
    EXPECT_EQ(send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  }
  // So many bytes, or what comes until the end.
  static std::string Receive(const FileDescriptor& from, size_t size) {
    std::string bytes(size, '\0');
    const ssize_t got = recv(from.get(), bytes.data(), size, MSG_WAITALL);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
    return bytes;
  }
  void WaitUntilOver() const {
    while (!link_->over()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  ListeningSocket listening_;
  std::unique_ptr<CollectorLink> link_;
  FileDescriptor collector_, grpc_;
};

TEST_F(CollectorLinkTest, PassesOnWhatIsAllowedAndThenHangsUp) {
  Send(grpc_, std::string(100000, 'x'));
  EXPECT_EQ(Receive(collector_, 100000), std::string(100000, 'x'));
  Send(collector_, std::string(900, 'a'));
  EXPECT_EQ(Receive(grpc_, 900), std::string(900, 'a'));
  link_->Allow(1000);
  Send(collector_, std::string(1000, 'b'));
  EXPECT_EQ(Receive(grpc_, 1000), std::string(1000, 'b'));
  EXPECT_FALSE(link_->over());
  Send(collector_, "c");
  EXPECT_EQ(Receive(grpc_, 1), "");
  WaitUntilOver();
}

TEST_F(CollectorLinkTest, EndsWithEitherSideAndByItself) {
  grpc_ = FileDescriptor();
  WaitUntilOver();
  EXPECT_EQ(Receive(collector_, 1), "");
  const std::string name = absl::StrCat("127.0.0.1:", listening_.port);
  auto other = CollectorLink::Connect(name, 1000);
  ASSERT_TRUE(other.ok()) << other.status();
  const FileDescriptor end((*other)->TakeEnd());
  other->reset();
  EXPECT_EQ(Receive(end, 1), "");
}

TEST_F(CollectorLinkTest, SaysWhyThereIsNone) {
  const std::string name = absl::StrCat("127.0.0.1:", listening_.port);
  listening_ = ListeningSocket();
  EXPECT_EQ(CollectorLink::Connect(name, 1).status().message(),
            absl::StrCat("cannot connect to ", name, ": Connection refused"));
  EXPECT_THAT(std::string(CollectorLink::Connect("no.such.host.invalid:1", 1).status().message()),
              HasSubstr("cannot resolve no.such.host.invalid: "));
}

}  // namespace
}  // namespace ulfd::server
