// SPDX-License-Identifier: Apache-2.0
#include "server/system/listening_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errors.h"

namespace ulfd::server {
namespace {

using AddressInfo = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Null, and why, for what is no IP address.
AddressInfo Numeric(const std::string& address, int port, int& error) {
  absl::string_view host = address;
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  error = getaddrinfo(std::string(host).c_str(), absl::StrCat(port).c_str(), &hints, &found);
  return {error == 0 ? found : nullptr, &freeaddrinfo};
}

constexpr absl::string_view kUnix = "unix:";

// Removes what a process left behind.  Why nobody should listen there, as it is in use or is no
// socket; else "".
std::string MakeFree(const sockaddr_un& address) {
  struct stat about {};
  if (stat(address.sun_path, &about) != 0) return "";
  if (!S_ISSOCK(about.st_mode)) return "what is there is no socket";
  const FileDescriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool answers =
      connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
      errno == EAGAIN;
  if (answers) return "another process listens there";
  unlink(address.sun_path);
  return "";
}

absl::StatusOr<ListeningSocket> ListenOnUnix(const std::string& path, absl::string_view protocol) {
  const auto fail = [&](absl::string_view why) {
    return Unavailable("cannot listen on ", kUnix, path, " for ", protocol, ": ", why);
  };
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = ""};
  if (path.copy(address.sun_path, sizeof(address.sun_path) - 1) < path.size()) {
    return fail("the path is too long");
  }
  if (const std::string why = MakeFree(address); !why.empty()) return fail(why);
  ListeningSocket result{
      .fd = FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      .path = path};
  const int fd = result.fd.get();
  if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd, SOMAXCONN) != 0) {
    return fail(std::strerror(errno));
  }
  return result;
}

}  // namespace

bool IsIpAddress(const std::string& address) {
  int error = 0;
  return Numeric(address, 0, error) != nullptr;
}

Endpoint PeerOf(const sockaddr_storage& peer) {
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(peer);
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
    return {text, ntohs(address.sin_port)};
  }
  if (peer.ss_family != AF_INET6) return {};
  const auto& address = reinterpret_cast<const sockaddr_in6&>(peer);
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
    inet_ntop(AF_INET, &address.sin6_addr.s6_addr[12], text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
  }
  return {text, ntohs(address.sin6_port)};
}

std::string PeerName(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_UNIX) return std::string(kUnix);
  const auto [address, port] = PeerOf(peer);
  return absl::StrContains(address, ':') ? absl::StrCat("ipv6:%5B", address, "%5D:", port)
                                         : absl::StrCat("ipv4:", address, ":", port);
}

absl::StatusOr<Endpoint> ParseEndpoint(const std::string& text) {
  if (absl::StartsWith(text, kUnix) && text.size() > kUnix.size() &&
      text.size() - kUnix.size() < sizeof(sockaddr_un::sun_path)) {
    return Endpoint{.address = text};
  }
  const size_t colon = text.rfind(':');
  Endpoint endpoint;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &endpoint.port) ||
      endpoint.port < 0 || endpoint.port > 65535 || !IsIpAddress(text.substr(0, colon))) {
    return InvalidArgument("\"", text, "\", want IP:PORT or unix:PATH");
  }
  endpoint.address = text.substr(0, colon);
  return endpoint;
}

ConnectionRoom RoomForConnections(int64_t descriptors) {
  constexpr int64_t kHttp = 512, kOthers = 256;
  const int64_t http = std::min(kHttp, descriptors / 4);
  return {.http = http, .grpc = descriptors - http - std::min(kOthers, descriptors / 4)};
}

ConnectionRoom RoomForConnections() {
  rlimit files{};
  const bool known = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < INT32_MAX;
  return RoomForConnections(known ? static_cast<int64_t>(files.rlim_cur) : INT32_MAX);
}

absl::StatusOr<ListeningSocket> ListenOn(const std::string& address, int port,
                                         absl::string_view protocol) {
  if (absl::StartsWith(address, kUnix)) {
    return ListenOnUnix(address.substr(kUnix.size()), protocol);
  }
  const auto fail = [&](absl::string_view why) {
    return Unavailable("cannot listen on ", address, ":", port, " for ", protocol, ": ", why);
  };
  int error = 0;
  const AddressInfo info = Numeric(address, port, error);
  if (info == nullptr) return fail(absl::StrCat("not an IP address: ", gai_strerror(error)));

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
