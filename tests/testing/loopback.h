// TCP connections to servers of this machine.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_LOOPBACK_H_
#define ULFD_TESTS_TESTING_LOOPBACK_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/system/listening_socket.h"

namespace ulfd::server {

// To 127.0.0.1, from 127.0.0.`host`; no descriptor if nobody accepts it.
inline FileDescriptor ConnectTo(int port, uint32_t host = 1) {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + host - 1);
  // A port that is chosen before the other side is known is not used again for a minute.
  if (host != 1 && bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return FileDescriptor();
  }
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return FileDescriptor();
  }
  return fd;
}

// The whole reply, with its head.
inline std::string HttpGet(int port, const std::string& path, const std::string& accept = "*/*") {
  const FileDescriptor fd = ConnectTo(port);
  if (fd.get() < 0) return "no connection";
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.0\r\nAccept: ", accept, "\r\n\r\n");
  send(fd.get(), request.data(), request.size(), 0);
  std::string reply;
  char buffer[4096];
  for (ssize_t n; (n = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0;) reply.append(buffer, n);
  return reply;
}

}  // namespace ulfd::server

#endif  // ULFD_TESTS_TESTING_LOOPBACK_H_
