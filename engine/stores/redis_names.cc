// SPDX-License-Identifier: Apache-2.0
#include "engine/stores/redis_names.h"

#include <netdb.h>
#include <sys/time.h>

#include <cstring>

#include "base/errors.h"
#include "base/file_descriptor.h"
#include "base/status_macros.h"

namespace ulfd::engine {
namespace {

// How long one of several addresses may take to let somebody connect.
constexpr timeval kConnectTimeout = {.tv_sec = 1, .tv_usec = 0};

bool LetsConnect(const addrinfo& at) {
  const FileDescriptor connection(socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int fd = connection.get();
  return fd >= 0 &&
         setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kConnectTimeout, sizeof kConnectTimeout) == 0 &&
         connect(fd, at.ai_addr, at.ai_addrlen) == 0;
}

// The first of several addresses at which somebody listens, or the first: a name may have one of
// each protocol, and Redis listens at one of them alone.
const addrinfo* Listening(const addrinfo* found) {
  if (found->ai_next == nullptr) return found;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (LetsConnect(*at)) return at;
  }
  return found;
}

// With AI_NUMERICHOST among the flags it asks nobody.
absl::StatusOr<RedisAddress> AddressOf(const std::string& node, int flags) {
  const auto [host, port] = SplitNode(node);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return Unavailable("Redis node ", node, ": ", gai_strerror(error));
  }
  const addrinfo* const taken = Listening(found);
  RedisAddress address;
  address.size = taken->ai_addrlen;
  std::memcpy(&address.address, taken->ai_addr, taken->ai_addrlen);
  freeaddrinfo(found);
  return address;
}

}  // namespace

std::pair<std::string, std::string> SplitNode(absl::string_view node) {
  const size_t colon = node.rfind(':');
  if (colon == absl::string_view::npos) return {std::string(node), ""};
  absl::string_view host = node.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return {std::string(host), std::string(node.substr(colon + 1))};
}

absl::StatusOr<RedisAddress> RedisNames::Find(const std::string& node) const {
  if (absl::StatusOr<RedisAddress> numeric = AddressOf(node, AI_NUMERICHOST); numeric.ok()) {
    return numeric;
  }
  MutexLock lock(mu_);
  const auto found = found_.find(node);
  if (found != found_.end()) return found->second;
  return Unavailable("Redis node ", node, ": the address of that name is not known yet");
}

absl::Status RedisNames::Resolve(const std::string& node) {
  if (AddressOf(node, AI_NUMERICHOST).ok()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const RedisAddress address, AddressOf(node, 0));
  MutexLock lock(mu_);
  found_[node] = address;
  return absl::OkStatus();
}

void RedisNames::KeepOnly(const std::set<std::string>& nodes) {
  MutexLock lock(mu_);
  std::erase_if(found_, [&](const auto& entry) { return !nodes.contains(entry.first); });
}

}  // namespace ulfd::engine
