// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/collector_link.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::server {
namespace {

constexpr int kConnectMs = 500;

// 0 or errno.
int ConnectTo(const addrinfo& to, FileDescriptor& made) {
  FileDescriptor fd(socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return errno;
  if (connect(fd.get(), to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    pollfd wait{fd.get(), POLLOUT, 0};
    if (poll(&wait, 1, kConnectMs) == 0) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  made = std::move(fd);
  return 0;
}

absl::StatusOr<FileDescriptor> ConnectTo(const std::string& collector) {
  const size_t colon = collector.rfind(':');
  std::string host = collector.substr(0, colon);
  if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), collector.c_str() + colon + 1, &hints, &found);
  if (failed != 0) return Unavailable("cannot resolve ", host, ": ", gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  int error = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    FileDescriptor fd;
    error = ConnectTo(*each, fd);
    if (error == 0) return fd;
  }
  return Unavailable("cannot connect to ", collector, ": ", std::strerror(error));
}

bool SendAll(int to, const char* bytes, ssize_t count) {
  for (ssize_t sent; count > 0; bytes += sent, count -= sent) {
    sent = send(to, bytes, static_cast<size_t>(count), MSG_NOSIGNAL);
    if (sent < 0) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CollectorLink>> CollectorLink::Connect(const std::string& collector,
                                                                      int64_t allowed) {
  ASSIGN_OR_RETURN(FileDescriptor connected, ConnectTo(collector));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Unavailable("no socket for the collector: ", std::strerror(errno));
  }
  FileDescriptor ours(ends[0]), theirs(ends[1]);
  try {
    return std::unique_ptr<CollectorLink>(
        new CollectorLink(std::move(connected), std::move(ours), std::move(theirs), allowed));
  } catch (const std::system_error& error) {
    return Unavailable("no thread for the collector: ", error.what());
  }
}

CollectorLink::CollectorLink(FileDescriptor collector, FileDescriptor ours, FileDescriptor theirs,
                             int64_t allowed)
    : collector_(std::move(collector)),
      ours_(std::move(ours)),
      theirs_(std::move(theirs)),
      allowed_(allowed),
      thread_([this] {
        pthread_setname_np(pthread_self(), "ulfd-collector");
        PassOn();
      }) {}

CollectorLink::~CollectorLink() {
  shutdown(collector_.get(), SHUT_RDWR);
  shutdown(ours_.get(), SHUT_RDWR);
  thread_.join();
}

void CollectorLink::PassOn() {
  char bytes[16 << 10];
  pollfd fds[] = {{collector_.get(), POLLIN, 0}, {ours_.get(), POLLIN, 0}};
  while (true) {
    const int ready = poll(fds, 2, -1);
    if (ready < 0 && errno == EINTR) continue;  // It has not looked.
    if (ready < 0) break;
    if (fds[1].revents != 0) {
      const ssize_t got = recv(ours_.get(), bytes, sizeof(bytes), 0);
      if (got <= 0 || !SendAll(collector_.get(), bytes, got)) break;
    }
    if (fds[0].revents == 0) continue;
    const int64_t most = std::min<int64_t>(sizeof(bytes), allowed_.load());
    const ssize_t got = recv(collector_.get(), bytes, static_cast<size_t>(most), 0);
    if (got <= 0) break;
    allowed_.fetch_sub(got);
    if (!SendAll(ours_.get(), bytes, got)) break;
  }
  over_.store(true);
  shutdown(collector_.get(), SHUT_RDWR);
  shutdown(ours_.get(), SHUT_RDWR);
}

}  // namespace ulfd::server
