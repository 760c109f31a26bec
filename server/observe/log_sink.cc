// Writes what a descriptor takes without waiting.
// SPDX-License-Identifier: Apache-2.0
#include "server/observe/log_sink.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ulfd::server {
namespace {

// A pipe that takes anything takes so much at once without waiting.
constexpr size_t kPieceBytes = PIPE_BUF;

bool TakesMoreWithin(int ms, int fd) {
  pollfd end{.fd = fd, .events = POLLOUT, .revents = 0};
  return poll(&end, 1, ms) == 1 && (end.revents & POLLOUT) != 0;
}

// A socket takes less than a piece, too, if it need not wait.
ssize_t WritePiece(int fd, absl::string_view piece) {
  const ssize_t sent = send(fd, piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent < 0 && errno == ENOTSOCK ? write(fd, piece.data(), piece.size()) : sent;
}

}  // namespace

bool LogSink::TakesMore() {
  constexpr int kPatienceMs = 100;
  if (TakesMoreWithin(0, fd_)) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now < may_wait_at_) return false;
  may_wait_at_ = now + std::chrono::seconds(1);
  return TakesMoreWithin(kPatienceMs, fd_);
}

bool LogSink::Write(absl::string_view text) {
  while (!text.empty()) {
    if (!TakesMore()) return false;
    const ssize_t written = WritePiece(fd_, text.substr(0, std::min(text.size(), kPieceBytes)));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
    inside_ = !text.empty();
  }
  return true;
}

void LogSink::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  const bool whole = (!inside_ || Write("\n")) && Write({line.data(), line.size()});
  if (!whole) dropped_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace ulfd::server
