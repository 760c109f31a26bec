// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/load_scope.h"
#include "server/rpc/tls_limit.h"
#include "server/system/peer.h"
#include "server/system/threads.h"

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
// How often connections are looked at, and how much of a CPU that may take.
constexpr milliseconds kLook{20};
constexpr int kLookShare = 100;
constexpr milliseconds kLongestPause{250};

bool InodeOf(int fd, ino_t& inode) {
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) return false;
  inode = info.st_ino;
  return true;
}

// Whether all of the TLS hello has come, on which the server computes, or something that is none.
bool HelloHasCome(int fd) {
  constexpr size_t kRecordHead = 5, kHead = kRecordHead + SSL3_HM_HEADER_LENGTH;
  uint8_t head[kHead];
  const ssize_t got = recv(fd, head, kHead, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0 || head[0] != SSL3_RT_HANDSHAKE) return true;
  if (static_cast<size_t>(got) < kHead) return false;
  const size_t size = size_t{head[6]} << 16 | size_t{head[7]} << 8 | head[8];
  int unread = 0;
  return size > kMaxHandshakeMessageBytes || ioctl(fd, FIONREAD, &unread) != 0 ||
         static_cast<size_t>(unread) >= kHead + size;
}

std::chrono::nanoseconds PaceOf(const AcceptorOptions& options) {
  if (options.handshakes_per_second == 0) return {};
  return std::chrono::nanoseconds(seconds(1)) / options.handshakes_per_second;
}

}  // namespace

ConnectionAcceptor::ConnectionAcceptor(ListeningSocket socket, const AcceptorOptions& options,
                                       std::function<void(int fd)> hand, CallLedger& ledger,
                                       Logger& logger)
    : socket_(std::move(socket)),
      options_(options),
      ledger_(ledger),
      watch_(options.watch, ledger),
      logger_(logger),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      heard_(epoll_create1(EPOLL_CLOEXEC)),
      spare_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      room_(options.max_connections),
      hand_over_(std::move(hand), PaceOf(options)) {
  handed_.reserve(static_cast<size_t>(options.max_connections));  // What took room has a place.
  ledger_.set_close([this](const std::string& peer, const char* why) { Close(peer, why); });
  thread_ = std::thread([this] { Loop(); });
}

ConnectionAcceptor::~ConnectionAcceptor() { Stop(); }

void ConnectionAcceptor::Stop() {
  MutexLock lock(stop_mu_);
  if (!thread_.joinable()) return;
  eventfd_write(wake_.get(), 1);
  thread_.join();
  socket_.fd = FileDescriptor();
  if (!socket_.path.empty()) unlink(socket_.path.c_str());
  mute_.clear();
  hand_over_.Stop();
}

void ConnectionAcceptor::Loop() {
  while (true) {
    pollfd fds[] = {
        {socket_.fd.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}, {heard_.get(), POLLIN, 0}};
    const auto left = std::chrono::ceil<milliseconds>(next_look_ - steady_clock::now());
    const int told = poll(fds, std::size(fds), std::max(0, static_cast<int>(left.count())));
    if (told < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    if (fds[0].revents != 0) AcceptAll();
    // Without memory they wait for the next time.
    if (fds[2].revents != 0) WithinMemory([this] { TakeHellos(); }).IgnoreError();
    if (steady_clock::now() < next_look_) continue;
    // What others on a busy machine take must not make looks rarer.
    const auto begin = CpuTimeOfThisThread();
    WithinMemory([this] { LookAtAll(); }).IgnoreError();  // There may be memory for the next one.
    next_look_ = steady_clock::now() +
                 std::clamp<steady_clock::duration>(kLookShare * (CpuTimeOfThisThread() - begin),
                                                    kLook, kLongestPause);
  }
}

void ConnectionAcceptor::AcceptAll() {
  constexpr int kBurst = 64;  // Then somebody may want us to stop.
  for (int i = 0; i < kBurst; ++i) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    FileDescriptor fd(accept4(socket_.fd.get(), reinterpret_cast<sockaddr*>(&peer), &size,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.get() >= 0) {
      // Without memory it ends; what was noted of it is forgotten as that of any other.
      WithinMemory([&] { HandOver(std::move(fd), PeerName(peer)); }).IgnoreError();
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

void ConnectionAcceptor::HandOver(FileDescriptor fd, const std::string& peer) {
  Handed handed{.fd = fd.get(), .inode = 0, .peer = peer, .client = ClientOf(peer)};
  if (!InodeOf(fd.get(), handed.inode) || !TakeRoom(handed.client)) return;
  const int on = 1;
  const unsigned timeout_ms = static_cast<unsigned>(options_.user_timeout.count());
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
  {
    MutexLock lock(mu_);
    ++stats_.accepted;
    handed_.push_back(std::move(handed));
  }
  const int number = fd.get();
  if (options_.handshakes_per_second == 0 || HelloHasCome(number)) {
    return hand_over_.Add(std::move(fd));
  }
  epoll_event told{.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {.fd = number}};
  mute_[number] = {std::move(fd), steady_clock::now() + options_.handshake_timeout};
  epoll_ctl(heard_.get(), EPOLL_CTL_ADD, number, &told);
}

void ConnectionAcceptor::TakeHellos() {
  epoll_event events[64];
  const int count = epoll_wait(heard_.get(), events, std::size(events), 0);
  for (int i = 0; i < count; ++i) {
    const auto mute = mute_.find(events[i].data.fd);
    const bool over = (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (!over && !HelloHasCome(mute->first)) continue;
    epoll_ctl(heard_.get(), EPOLL_CTL_DEL, mute->first, nullptr);
    if (!over) hand_over_.Add(std::move(mute->second.fd));
    mute_.erase(mute);
  }
}

bool ConnectionAcceptor::TakeRoom(const std::string& client) {
  {
    MutexLock lock(mu_);
    if (room_.Take(client, 1)) return true;
    const auto now = steady_clock::now();
    if (now >= next_count_) {
      CountOpen();
      if (room_.Take(client, 1)) return true;
      next_count_ = now + kCountInterval;
    }
    ++stats_.over_limit;
  }
  Warn("connections over the limit are closed", options_.max_connections);
  return false;
}

void ConnectionAcceptor::CountOpen() const {
  const auto closed = [this](const Handed& handed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ino_t inode = 0;
    if (InodeOf(handed.fd, inode) && inode == handed.inode) return false;
    ledger_.Forget(handed.peer);
    room_.Release(handed.client, 1);
    return true;
  };
  handed_.erase(std::remove_if(handed_.begin(), handed_.end(), closed), handed_.end());
}

void ConnectionAcceptor::LookAtAll() {
  const auto now = steady_clock::now();
  std::erase_if(mute_, [now](const auto& entry) { return entry.second.until < now; });
  std::vector<ConnectionWatch::Connection> open;
  {
    MutexLock lock(mu_);
    CountOpen();
    open.reserve(handed_.size());
    for (const Handed& handed : handed_) {
      if (!SharesPeer(handed.peer)) open.push_back({handed.peer, ReadBytes(handed.fd)});
    }
  }
  for (const auto& [peer, why] : watch_.Look(open)) Close(peer, why);
}

bool ConnectionAcceptor::OnSocket(const Handed& handed, absl::FunctionRef<void(int fd)> act) const {
  // A copy cannot become another socket between the look and the end, as the number itself can.
  const int copy = spare_.get();
  if (dup3(handed.fd, copy, O_CLOEXEC) < 0) return false;
  ino_t inode = 0;
  const bool open = InodeOf(copy, inode) && inode == handed.inode;
  if (open) act(copy);
  dup3(wake_.get(), copy, O_CLOEXEC);  // Else the copy would keep the socket open.
  return open;
}

void ConnectionAcceptor::CloseIdle(milliseconds patience) {
  const auto end = steady_clock::now() + patience;
  while (true) {
    {
      MutexLock lock(mu_);
      CountOpen();
      if (handed_.empty()) return;
      for (const Handed& handed : handed_) {
        if (ledger_.CountsOf(handed.peer).under_way > 0) continue;
        OnSocket(handed, [](int fd) { shutdown(fd, SHUT_RDWR); });
      }
    }
    if (steady_clock::now() >= end) return;
    std::this_thread::sleep_for(milliseconds(1));
  }
}

void ConnectionAcceptor::Close(const std::string& peer, const char* why) {
  if (SharesPeer(peer)) return;  // It might be another one.
  bool says = false;
  {
    MutexLock lock(mu_);
    const auto handed =
        std::find_if(handed_.rbegin(), handed_.rend(),
                     [&](const Handed& candidate) { return candidate.peer == peer; });
    if (handed == handed_.rend()) return;
    // A reset: after a shutdown Linux would go on taking what comes, and gRPC would read it all.
    constexpr sockaddr kNobody{.sa_family = AF_UNSPEC, .sa_data = {}};
    if (!OnSocket(*handed,
                  [&](int fd) { static_cast<void>(connect(fd, &kNobody, sizeof(kNobody))); }))
      return;
    ++stats_.closed[why];
    const auto now = steady_clock::now();
    says = now >= next_close_line_;
    if (says) next_close_line_ = now + kWarningInterval;
  }
  if (says) {
    logger_.Warning("a connection that takes too much is closed; others may follow without a line",
                    {{"peer", peer}, {"why", why}});
  }
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
