// What a client sends to the HTTP port, in one piece or two, to a service that answers with the
// bodies that it was sent.  The first byte says where the pieces part, and whether the client ends
// its side behind them.
// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/observe/http_server.h"
#include "tests/fuzz/fuzz.h"
#include "tests/testing/loopback.h"

namespace {

using namespace ulfd::server;
using std::chrono::milliseconds;
using ulfd::fuzz::Fail;

const HttpServer& Server() {
  static const HttpServer* const server = [] {
    HttpServer::Pages pages;
    pages.quick["/metrics"] = [] { return HttpReply{.body = "a 1\n"}; };
    HttpServer::Service service{
        .prefix = "/v2",
        .max_body_bytes = 4096,
        .max_bodies_bytes = 6000,
        .admit = [](const HttpRequest& request, const std::string&) -> std::optional<HttpReply> {
          if (request.Header("stranger").empty()) return std::nullopt;
          return HttpReply{.code = 401, .body = "who are you\n"};
        },
        .take =
            [](std::unique_ptr<HttpExchange> exchange) {
              exchange->Reply({.body = std::string(exchange->body())});
            }};
    auto created = HttpServer::Create("127.0.0.1", 0, std::move(pages), std::move(service),
                                      {.max_connections = 4,
                                       .max_head_bytes = 1024,
                                       .request_timeout = milliseconds(2),
                                       .body_timeout = milliseconds(2),
                                       .idle_timeout = milliseconds(2),
                                       .max_unsent_bytes = 8000});
    if (!created.ok()) Fail(created.status().ToString());
    return created->release();
  }();
  return *server;
}

// Takes one reply off the front.
void TakeReply(absl::string_view& replies) {
  constexpr absl::string_view kLength = "\r\nContent-Length: ";
  const size_t head_bytes = FindHeadEnd(replies);
  if (!absl::StartsWith(replies, "HTTP/1.1 ") || head_bytes == absl::string_view::npos) {
    Fail(absl::StrCat("no reply: ", replies.substr(0, 100)));
  }
  const absl::string_view head = replies.substr(0, head_bytes);
  replies.remove_prefix(head_bytes);
  if (absl::StartsWith(head, "HTTP/1.1 100 ")) return;
  const size_t at = head.find(kLength);
  if (at == absl::string_view::npos) Fail("a reply without a length");
  absl::string_view digits = head.substr(at + kLength.size());
  digits = digits.substr(0, digits.find('\r'));
  size_t bytes = 0;
  if (!absl::SimpleAtoi(digits, &bytes)) Fail("a length that is none");
  // That of HEAD has none, and is the last one.
  if (bytes > replies.size() && !replies.empty()) Fail("a reply that is cut");
  replies.remove_prefix(std::min(bytes, replies.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view text = ulfd::fuzz::AsText(data + 1, size - 1);
  const ulfd::FileDescriptor client = ConnectTo(Server().port());
  if (client.get() < 0) return 0;
  const size_t first = text.size() * (data[0] / 2) / 127;
  // The server may have refused the rest.
  for (absl::string_view piece : {text.substr(0, first), text.substr(first)}) {
    send(client.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
  }
  if (data[0] % 2 == 1) shutdown(client.get(), SHUT_WR);
  std::string received;
  char buffer[16384];
  for (ssize_t n; (n = recv(client.get(), buffer, sizeof buffer, 0)) > 0;) {
    received.append(buffer, static_cast<size_t>(n));
  }
  // A request takes two line ends, and may be told to go on.
  const auto lines = std::count(text.begin(), text.end(), '\n');
  absl::string_view replies = received;
  for (auto count = lines + 1; !replies.empty(); --count) {
    if (count < 0) Fail("more replies than requests");
    TakeReply(replies);
  }
  return 0;
}
