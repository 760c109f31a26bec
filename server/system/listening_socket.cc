// Binds and listens.
// SPDX-License-Identifier: Apache-2.0
#include "server/system/listening_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ulfd::server {

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<ListeningSocket> ListenOn(const std::string& address, int port,
                                         absl::string_view protocol) {
  const auto fail = [&](absl::string_view why) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ":", port, " for ", protocol, ": ", why));
  };
  absl::string_view host = address;
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(std::string(host).c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) return fail(absl::StrCat("not an IP address: ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> info(found, &freeaddrinfo);

  ListeningSocket result;
  result.fd =
      FileDescriptor(socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = result.fd.get();
  if (fd < 0) return fail(std::strerror(errno));
  const int on = 1, off = 0;
  // Connections of the process before may linger in TIME_WAIT; a socket that listens still counts.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (info->ai_family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0) {
    return fail(std::strerror(errno));
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return fail(std::strerror(errno));
  }
  result.port =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                        : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  return result;
}

}  // namespace ulfd::server
