// Sockets that listen.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SYSTEM_LISTENING_SOCKET_H_
#define ULFD_SERVER_SYSTEM_LISTENING_SOCKET_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file_descriptor.h"

namespace ulfd::server {

struct ListeningSocket {
  FileDescriptor fd;  // Does not block.
  int port = 0;
  std::string path;  // Of a Unix socket: whoever listens no longer removes it.
};

// Whether ListenOn takes it: "0.0.0.0", "127.0.0.1", "[::1]", "::1".
bool IsIpAddress(const std::string& address);

// An IP address and a port, or "unix:PATH" (port 0).
struct Endpoint {
  std::string address;
  int port = 0;
};
// Reads "127.0.0.1:8502", "[::1]:8502" or "unix:/run/ulfd/admin.sock"; INVALID_ARGUMENT: neither.
absl::StatusOr<Endpoint> ParseEndpoint(const std::string& text);
// Of a connection's other side: "127.0.0.1", also where IPv6 carries it, or "::1"; "" for what is
// no IP address.
Endpoint PeerOf(const sockaddr_storage& peer);
// The same as gRPC has it: "ipv4:127.0.0.1:4242", "ipv6:%5B::1%5D:4242", or "unix:".
std::string PeerName(const sockaddr_storage& peer);

// How many connections each port may have for a process with that many file descriptors: a quarter
// of them, or 256, are left to models, pages and logs.
struct ConnectionRoom {
  int64_t http = 0, grpc = 0;
};
ConnectionRoom RoomForConnections(int64_t descriptors);
// For this process.
ConnectionRoom RoomForConnections();

// TCP on an IP address ("0.0.0.0", "127.0.0.1", "[::1]"; "[::]" includes IPv4); port 0: any free
// one; or on the Unix socket of "unix:PATH".  A port or socket on which somebody listens is an
// error; a socket that a process left behind is replaced.  UNAVAILABLE: `cannot listen on
// 127.0.0.1:80 for HTTP: Permission denied`.
absl::StatusOr<ListeningSocket> ListenOn(const std::string& address, int port,
                                         absl::string_view protocol);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SYSTEM_LISTENING_SOCKET_H_
