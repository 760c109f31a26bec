// SPDX-License-Identifier: Apache-2.0
#include "server/system/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "absl/strings/match.h"

namespace ulfd::server {

std::string AddressOf(const std::string& peer) {
  std::string address = peer.substr(0, peer.rfind(':'));
  const size_t begin = address.find("%5B"), end = address.find("%5D");
  in6_addr bytes;
  if (begin == std::string::npos || end == std::string::npos ||
      inet_pton(AF_INET6, address.substr(begin + 3, end - begin - 3).c_str(), &bytes) != 1 ||
      IN6_IS_ADDR_V4MAPPED(&bytes)) {
    return address;
  }
  std::memset(bytes.s6_addr + 8, 0, 8);
  char text[INET6_ADDRSTRLEN];
  inet_ntop(AF_INET6, &bytes, text, sizeof(text));
  return std::string(text) + "/64";
}

std::string ClientOf(const std::string& peer) {
  const bool here =
      absl::StartsWith(peer, "ipv4:127.0.0.1:") || absl::StartsWith(peer, "ipv6:%5B::1%5D:");
  return here ? peer : AddressOf(peer);
}

}  // namespace ulfd::server
