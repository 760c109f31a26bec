// A GET over one socket: an image needs no other HTTP client for its health check.
// SPDX-License-Identifier: Apache-2.0
#include "tools/client/http_get.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace ulfd::tools {
namespace {

constexpr size_t kMaxBytes = 65536;

struct Url {
  std::string authority, host, port = "80", path = "/";
};

absl::StatusOr<Url> ParseUrl(const std::string& text) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\", want http://HOST[:PORT][/PATH]"));
  };
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "http://")) return bad();
  Url url;
  const size_t slash = std::min(rest.find('/'), rest.size());
  if (slash < rest.size()) url.path = std::string(rest.substr(slash));
  rest = rest.substr(0, slash);
  url.authority = std::string(rest);
  absl::string_view host = rest;
  const size_t colon = rest.rfind(':');
  // "[::1]" has colons of its own.
  if (colon != absl::string_view::npos && rest.find(']', colon) == absl::string_view::npos) {
    int port = 0;
    if (!absl::SimpleAtoi(rest.substr(colon + 1), &port) || port < 1 || port > 65535) return bad();
    url.port = absl::StrCat(port);
    host = rest.substr(0, colon);
  }
  if (absl::ConsumePrefix(&host, "[") && !absl::ConsumeSuffix(&host, "]")) return bad();
  url.host = std::string(host);
  const auto unprintable = [](char c) { return c <= ' ' || c > '~'; };
  if (url.host.empty() || std::any_of(text.begin(), text.end(), unprintable)) return bad();
  return url;
}

class Socket {
 public:
  explicit Socket(const addrinfo& address)
      : fd_(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

  absl::Status WaitFor(int16_t events, absl::Time until) const {
    while (true) {
      pollfd wanted{.fd = fd_, .events = events, .revents = 0};
      const int64_t left = absl::ToInt64Milliseconds(until - absl::Now()) + 1;
      const int ready = poll(&wanted, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 60000)));
      if (ready > 0) return absl::OkStatus();
      if (ready < 0 && errno != EINTR) return absl::UnavailableError(std::strerror(errno));
      if (absl::Now() >= until) return absl::DeadlineExceededError("no answer in time");
    }
  }
  absl::Status Connect(const addrinfo& address, absl::Time until) const {
    if (fd_ < 0) return absl::UnavailableError(std::strerror(errno));
    if (connect(fd_, address.ai_addr, address.ai_addrlen) == 0) return absl::OkStatus();
    if (errno != EINPROGRESS) return absl::UnavailableError(std::strerror(errno));
    RETURN_IF_ERROR(WaitFor(POLLOUT, until));
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? absl::OkStatus() : absl::UnavailableError(std::strerror(error));
  }
  absl::Status Send(absl::string_view text, absl::Time until) const {
    while (!text.empty()) {
      RETURN_IF_ERROR(WaitFor(POLLOUT, until));
      const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) return absl::UnavailableError(std::strerror(errno));
      if (sent > 0) text.remove_prefix(static_cast<size_t>(sent));
    }
    return absl::OkStatus();
  }
  // Until the server closes, or there is too much.
  absl::StatusOr<std::string> ReceiveAll(absl::Time until) const {
    std::string text;
    char block[4096];
    while (text.size() < kMaxBytes) {
      RETURN_IF_ERROR(WaitFor(POLLIN, until));
      const ssize_t got = recv(fd_, block, sizeof block, 0);
      if (got == 0) break;
      if (got < 0 && errno != EAGAIN) return absl::UnavailableError(std::strerror(errno));
      if (got > 0) text.append(block, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  const int fd_;
};

absl::StatusOr<HttpPage> ParseReply(const std::string& text) {
  HttpPage page;
  const size_t space = text.find(' ');
  const size_t end = text.find("\r\n\r\n");
  if (text.rfind("HTTP/1.", 0) != 0 || end == std::string::npos ||
      !absl::SimpleAtoi(text.substr(space + 1, 3), &page.code)) {
    return absl::UnavailableError("the answer is no HTTP");
  }
  page.body = text.substr(end + 4);
  return page;
}

absl::StatusOr<HttpPage> Ask(const addrinfo& address, const Url& url, absl::Time until) {
  const Socket socket(address);
  RETURN_IF_ERROR(socket.Connect(address, until));
  RETURN_IF_ERROR(socket.Send(absl::StrCat("GET ", url.path, " HTTP/1.0\r\nHost: ", url.authority,
                                           "\r\nConnection: close\r\n\r\n"),
                              until));
  ASSIGN_OR_RETURN(const std::string text, socket.ReceiveAll(until));
  return ParseReply(text);
}

}  // namespace

absl::StatusOr<HttpPage> HttpGet(const std::string& text, absl::Duration timeout) {
  ASSIGN_OR_RETURN(const Url url, ParseUrl(text));
  const absl::Time until = absl::Now() + timeout;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat(url.host, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, &freeaddrinfo);
  absl::Status last;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    absl::StatusOr<HttpPage> page = Ask(*address, url, until);
    if (page.ok()) return page;
    last = absl::Status(page.status().code(), absl::StrCat(text, ": ", page.status().message()));
  }
  return last;
}

}  // namespace ulfd::tools
