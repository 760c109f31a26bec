// Where a node of Redis would listen.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_REDIS_LISTENER_H_
#define ULFD_TESTS_TESTING_REDIS_LISTENER_H_

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/file_descriptor.h"

namespace ulfd::testing {

// A socket on loopback that listens, with a port of its own if none is given.
class RedisListener {
 public:
  explicit RedisListener(in_addr_t host = INADDR_LOOPBACK, int port = 0)
      : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(host);
    address.sin_port = htons(static_cast<uint16_t>(port));
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd(), any, size), 0);
    EXPECT_EQ(listen(fd(), 8), 0);
    EXPECT_EQ(getsockname(fd(), any, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  int fd() const { return fd_.get(); }
  int port() const { return port_; }
  std::string name() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const FileDescriptor fd_;
  int port_ = 0;
};

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_REDIS_LISTENER_H_
