// Who is at the other side of a connection, as gRPC names it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SYSTEM_PEER_H_
#define ULFD_SERVER_SYSTEM_PEER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ulfd::server {

// Whether other connections have that peer, too: those of a Unix socket.
inline bool SharesPeer(absl::string_view peer) { return peer.substr(0, 5) == "unix:"; }

// "ipv4:127.0.0.1:4242" -> "ipv4:127.0.0.1", "ipv6:%5B2001:db8::1%5D:4242" -> "2001:db8::/64": who
// has one address of IPv6 has all of its network.
std::string AddressOf(const std::string& peer);

// As whom a peer without a name counts where clients share something: its address, because who
// connects again or often is no other client for that.  On this machine the connection, because a
// proxy beside the daemon speaks for many.
std::string ClientOf(const std::string& peer);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SYSTEM_PEER_H_
