// One poll loop.  Decision 0025 says why it is our own.
// SPDX-License-Identifier: Apache-2.0
#include "server/observe/http_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/observe/http_request.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;

// How long a caller may take to notice that the reply is complete.
constexpr milliseconds kClosingTime{1000};
// What a caller may still send meanwhile is thrown away.
constexpr milliseconds kNoDescriptors{20};

absl::string_view Reason(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

std::string Format(const HttpReply& reply, bool with_body) {
  return absl::StrCat("HTTP/1.1 ", reply.code, " ", Reason(reply.code),
                      "\r\nContent-Type: ", reply.content_type,
                      "\r\nContent-Length: ", reply.body.size(), "\r\nCache-Control: no-store\r\n",
                      reply.code == 405 ? "Allow: GET, HEAD\r\n" : "", "Connection: close\r\n\r\n",
                      with_body ? reply.body : "");
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(const std::string& address, int port,
                                                               std::map<std::string, Page> pages,
                                                               const Limits& limits) {
  ASSIGN_OR_RETURN(ListeningSocket socket, ListenOn(address, port, "HTTP"));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(socket), std::move(pages), limits));
}

HttpServer::HttpServer(ListeningSocket socket, std::map<std::string, Page> pages,
                       const Limits& limits)
    : socket_(std::move(socket)),
      pages_(std::move(pages)),
      limits_(limits),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Loop(); }) {}

HttpServer::~HttpServer() {
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

void HttpServer::Loop() {
  std::vector<pollfd> fds;
  while (true) {
    fds = {{wake_.get(), POLLIN, 0}, {socket_.fd.get(), POLLIN, 0}};
    auto until = Clock::time_point::max();
    for (const Connection& connection : connections_) {
      const bool writes = connection.state == State::kWriting;
      fds.push_back({connection.fd.get(), static_cast<int16_t>(writes ? POLLOUT : POLLIN), 0});
      until = std::min(until, connection.until);
    }
    int wait_ms = -1;
    if (!connections_.empty()) {
      const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
      wait_ms = static_cast<int>(std::max<milliseconds>(left, milliseconds(0)).count());
    }
    if (poll(fds.data(), fds.size(), wait_ms) < 0 && errno != EINTR) return;
    if (fds[0].revents != 0) return;
    const auto now = Clock::now();
    // Those with an end of their own go; from the back, so that indices stay right.
    for (size_t i = connections_.size(); i-- > 0;) {
      Connection& connection = connections_[i];
      const bool open = fds[i + 2].revents == 0 || Advance(connection);
      if (open && now < connection.until) continue;
      std::swap(connection, connections_.back());
      connections_.pop_back();
    }
    if (fds[1].revents != 0) Accept();
  }
}

void HttpServer::Accept() {
  constexpr int kBurst = 64;  // Then those that are here already have their turn.
  for (int i = 0; i < kBurst; ++i) {
    Connection connection{.fd = FileDescriptor(accept4(socket_.fd.get(), nullptr, nullptr,
                                                       SOCK_NONBLOCK | SOCK_CLOEXEC)),
                          .until = Clock::now() + limits_.request_timeout};
    if (connection.fd.get() < 0) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno != EMFILE && errno != ENFILE) return;
      if (connections_.empty()) {
        // Nothing closes a connection of somebody else's, but the wait keeps the loop from
        // spinning.
        pollfd stop = {wake_.get(), POLLIN, 0};
        poll(&stop, 1, static_cast<int>(kNoDescriptors.count()));
        return;
      }
      CloseOldest();
      continue;
    }
    // Most have sent their request by now: however many come behind them, they have their reply.
    if (!Advance(connection)) continue;
    if (connections_.size() >= static_cast<size_t>(limits_.max_connections)) CloseOldest();
    connections_.push_back(std::move(connection));
  }
}

void HttpServer::CloseOldest() {
  const auto first =
      std::min_element(connections_.begin(), connections_.end(),
                       [](const Connection& a, const Connection& b) { return a.until < b.until; });
  std::swap(*first, connections_.back());
  connections_.pop_back();
}

bool HttpServer::Advance(Connection& connection) {
  switch (connection.state) {
    case State::kReading:
      return Read(connection);
    case State::kWriting:
      return Write(connection);
    case State::kClosing:
      break;
  }
  // Closing a socket with unread data in it would take back the reply.
  char rest[4096];
  ssize_t got;
  do {
    got = recv(connection.fd.get(), rest, sizeof(rest), 0);
  } while (got > 0);
  return got < 0 && (errno == EAGAIN || errno == EINTR);
}

bool HttpServer::Read(Connection& connection) {
  std::string& text = connection.text;
  while (text.size() <= limits_.max_head_bytes) {
    char buffer[4096];
    const ssize_t got = recv(connection.fd.get(), buffer, sizeof(buffer), 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    text.append(buffer, static_cast<size_t>(got));
    const size_t end = FindHeadEnd(text);
    if (end == std::string::npos) continue;
    text = ReplyTo(absl::string_view(text).substr(0, end));
    connection.state = State::kWriting;
    connection.until = Clock::now() + limits_.reply_timeout;
    return Write(connection);
  }
  text = Format({431, "text/plain",
                 absl::StrCat("a request head of more than ", limits_.max_head_bytes, " bytes\n")},
                true);
  connection.state = State::kWriting;
  connection.until = Clock::now() + limits_.reply_timeout;
  return Write(connection);
}

bool HttpServer::Write(Connection& connection) {
  while (connection.sent < connection.text.size()) {
    const ssize_t sent = send(connection.fd.get(), connection.text.data() + connection.sent,
                              connection.text.size() - connection.sent, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<size_t>(sent);
  }
  shutdown(connection.fd.get(), SHUT_WR);
  connection.state = State::kClosing;
  connection.until = Clock::now() + kClosingTime;
  return Advance(connection);
}

std::string HttpServer::ReplyTo(absl::string_view head) const {
  const HttpRequest request = ParseHead(head);
  if (request.refused == 400) return Format({400, "text/plain", "want GET PATH HTTP/1.1\n"}, true);
  if (request.refused == 405) return Format({405, "text/plain", "want GET or HEAD\n"}, true);
  const auto it = pages_.find(std::string(request.path));
  if (it == pages_.end()) return Format({404, "text/plain", "no such page\n"}, !request.head_only);
  return Format(it->second(), !request.head_only);
}

}  // namespace ulfd::server
