// The accept loop.
// SPDX-License-Identifier: Apache-2.0
#include "server/connection_acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// Every connection was just looked at, and all were open: they are not looked at again sooner.
constexpr milliseconds kCountInterval{20};
constexpr seconds kWarningInterval{10};
// The process has no file descriptor left: time for somebody to close one.
constexpr milliseconds kBackoff{20};

bool InodeOf(int fd, ino_t& inode) {
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) return false;
  inode = info.st_ino;
  return true;
}

}  // namespace

ConnectionAcceptor::ConnectionAcceptor(ListeningSocket socket, const AcceptorOptions& options,
                                       std::function<void(int fd)> hand, Logger& logger)
    : socket_(std::move(socket)),
      options_(options),
      hand_(std::move(hand)),
      logger_(logger),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Loop(); }) {}

ConnectionAcceptor::~ConnectionAcceptor() { Stop(); }

void ConnectionAcceptor::Stop() {
  MutexLock lock(stop_mu_);
  if (!thread_.joinable()) return;
  eventfd_write(wake_.get(), 1);
  thread_.join();
  socket_.fd = FileDescriptor();
}

void ConnectionAcceptor::Loop() {
  while (true) {
    pollfd fds[] = {{socket_.fd.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    if (fds[0].revents != 0) AcceptAll();
  }
}

void ConnectionAcceptor::AcceptAll() {
  constexpr int kBurst = 64;  // Then somebody may want us to stop.
  for (int i = 0; i < kBurst; ++i) {
    const int fd = accept4(socket_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      HandOver(fd);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      {
        MutexLock lock(mu_);
        ++stats_.no_descriptors;
      }
      Warn("no file descriptor for another connection", options_.max_connections);
      pollfd stop = {wake_.get(), POLLIN, 0};
      poll(&stop, 1, static_cast<int>(kBackoff.count()));
      return;
    }
    // A connection that ended before it was accepted is no reason to stop.
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
  }
}

void ConnectionAcceptor::HandOver(int fd) {
  ino_t inode = 0;
  if (!HasRoom() || !InodeOf(fd, inode)) {
    close(fd);
    return;
  }
  const int on = 1;
  const unsigned timeout_ms = static_cast<unsigned>(options_.user_timeout.count());
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
  {
    MutexLock lock(mu_);
    ++stats_.accepted;
    handed_.push_back({fd, inode});
  }
  hand_(fd);
}

bool ConnectionAcceptor::HasRoom() {
  const auto limit = static_cast<size_t>(options_.max_connections);
  {
    MutexLock lock(mu_);
    if (handed_.size() < limit) return true;
    const auto now = steady_clock::now();
    if (now >= next_count_) {
      CountOpen();
      if (handed_.size() < limit) return true;
      next_count_ = now + kCountInterval;
    }
    ++stats_.over_limit;
  }
  Warn("connections over the limit are closed", options_.max_connections);
  return false;
}

void ConnectionAcceptor::CountOpen() const {
  const auto closed = [](const Handed& handed) {
    ino_t inode = 0;
    return !InodeOf(handed.fd, inode) || inode != handed.inode;
  };
  handed_.erase(std::remove_if(handed_.begin(), handed_.end(), closed), handed_.end());
}

ConnectionStats ConnectionAcceptor::Stats() const {
  MutexLock lock(mu_);
  CountOpen();
  ConnectionStats stats = stats_;
  stats.open = static_cast<int64_t>(handed_.size());
  return stats;
}

void ConnectionAcceptor::Warn(const char* what, int64_t limit) {
  const auto now = steady_clock::now();
  if (now < next_warning_) return;
  next_warning_ = now + kWarningInterval;
  const ConnectionStats stats = Stats();
  logger_.Warning(what, {{"open", stats.open},
                         {"max_connections", limit},
                         {"over_limit", stats.over_limit},
                         {"no_descriptors", stats.no_descriptors}});
}

}  // namespace ulfd::server
