// The HTTP server against callers that behave and callers that do not.
// SPDX-License-Identifier: Apache-2.0
#include "server/observe/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "server/system/threads.h"
#include "tests/testing/loopback.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(HttpServer::Limits limits = {}) {
    limits.max_unsent_bytes = 12 << 20;
    HttpServer::Pages all;
    all.quick["/quick"] = [] { return HttpReply{.body = "quick\n"}; };
    std::map<std::string, HttpServer::Page>& pages = all.dear;
    pages["/hello"] = [] { return HttpReply{.body = "hello\n"}; };
    pages["/hello text/html"] = [] { return HttpReply{.body = "<p>hello\n"}; };
    pages["/large"] = [] { return HttpReply{.body = std::string(8 << 20, 'x')}; };
    pages["/dear"] = [this] {
      const auto end = CpuTimeOfThisThread() + milliseconds(20);
      while (CpuTimeOfThisThread() < end) {
      }
      return HttpReply{.body = absl::StrCat(++made_, "\n")};
    };
    pages["/slow"] = [this] {
      release_.WaitForNotification();
      return HttpReply{.body = "slow\n"};
    };
    pages["/none"] = []() -> HttpReply { throw std::bad_alloc(); };
    pages["/busy"] = [] { return HttpReply{.code = 503, .body = "busy\n"}; };
    HttpServer::Service service{
        .prefix = "/v2",
        .max_body_bytes = 1 << 20,
        .max_bodies_bytes = 3 << 19,
        .admit = [](const HttpRequest& request,
                    const std::string& peer) -> std::optional<HttpReply> {
          EXPECT_THAT(peer, StartsWith("ipv4:127.0.0.1:"));
          if (request.Header("stranger").empty()) return std::nullopt;
          return HttpReply{.code = 401, .body = "who are you\n"};
        },
        .take =
            [this](std::unique_ptr<HttpExchange> exchange) {
              if (exchange->request().path == "/v2/hold") {
                held_.push_back(std::move(exchange));
                return;
              }
              if (exchange->request().path == "/v2/large") {
                return exchange->Reply({.body = std::string(8 << 20, 'x')});
              }
              std::thread([exchange = std::move(exchange)] {
                exchange->Reply({.body = absl::StrCat(exchange->request().method, " ",
                                                      exchange->request().Header("x-A"), " ",
                                                      exchange->body().size(), "\n")});
              }).detach();
            }};
    auto http = HttpServer::Create("127.0.0.1", 0, std::move(all), std::move(service), limits);
    ASSERT_TRUE(http.ok()) << http.status();
    http_ = *std::move(http);
  }
  FileDescriptor Connect() const {
    FileDescriptor fd = ConnectTo(http_->port());
    EXPECT_GE(fd.get(), 0);
    return fd;
  }
  static std::string ReadAll(int fd) {
    std::string text;
    char buffer[65536];
    for (ssize_t n; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) text.append(buffer, n);
    return text;
  }
  std::string Ask(const std::string& request) const {
    const FileDescriptor fd = Connect();
    send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
    return ReadAll(fd.get());
  }
  absl::Notification release_;
  int made_ = 0;  // Dear pages, by the maker's thread.
  std::unique_ptr<HttpServer> http_;
  std::vector<std::unique_ptr<HttpExchange>> held_;  // By the server's thread.
};

TEST_F(HttpServerTest, TheServiceTakesBodiesAndKeepsConnections) {
  Start();
  const FileDescriptor fd = Connect();
  // Two at once, in pieces.
  const std::string both =
      "POST /v2/x?y HTTP/1.1\r\nX-a:  b \r\ncontent-length: 3\r\n\r\nabc"
      "GET /v2 HTTP/1.1\r\nConnection: close\r\n\r\n";
  for (char c : both) send(fd.get(), &c, 1, MSG_NOSIGNAL);
  EXPECT_EQ(ReadAll(fd.get()),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 9\r\n"
            "Cache-Control: no-store\r\nConnection: keep-alive\r\n\r\nPOST b 3\n"
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 7\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\nGET  0\n");
  EXPECT_THAT(Ask("GET /v22 HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask("POST /v2 HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 411"));
  EXPECT_THAT(Ask("HEAD http://there/v2 HTTP/1.1\r\nConnection: TE, Close\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200"), EndsWith("Connection: close\r\n\r\n")));
  EXPECT_THAT(Ask("POST /v2 HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(Ask("POST /v2 HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n"
                  "Connection: close\r\n\r\n")
                  .substr(0, 25),
              StartsWith("HTTP/1.1 100 Continue\r\n\r\n"));
}

TEST_F(HttpServerTest, APageThatFindsNoMemoryEndsItsConnectionAlone) {
  Start();
  EXPECT_EQ(Ask("GET /none HTTP/1.1\r\n\r\n"), "");
  EXPECT_THAT(Ask("GET /hello HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, ADearPageIsNotMadeForEachOfMany) {
  Start();
  const std::string request = "GET /dear HTTP/1.1\r\n\r\n";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(Ask(request), HasSubstr("\r\n\r\n1\n"));
  EXPECT_THAT(Ask(request), HasSubstr("\r\n\r\n2\n")) << "few get their own";
  std::vector<FileDescriptor> many;
  for (int i = 0; i < 100; ++i) {
    many.push_back(Connect());
    send(many.back().get(), request.data(), request.size(), MSG_NOSIGNAL);
  }
  for (const FileDescriptor& fd : many) EXPECT_THAT(ReadAll(fd.get()), HasSubstr("\r\n\r\n"));
  EXPECT_THAT(Ask("HEAD /dear HTTP/1.1\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 OK"), Not(HasSubstr("\r\n\r\n1"))));
  http_.reset();
  // A quarter of a CPU, and at first 50 ms and a page more.
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(made_ * milliseconds(20), took / 4 + milliseconds(70)) << "103 were asked for";
}

TEST_F(HttpServerTest, APageThatTakesLongKeepsNoProbeWaiting) {
  Start();
  const std::string request = "GET /slow HTTP/1.1\r\n\r\n";
  const FileDescriptor patient = Connect(), half_closed = Connect();
  for (const FileDescriptor* fd : {&patient, &half_closed}) {
    send(fd->get(), request.data(), request.size(), MSG_NOSIGNAL);
  }
  shutdown(half_closed.get(), SHUT_WR);
  EXPECT_THAT(Ask("GET /quick HTTP/1.1\r\n\r\n"), EndsWith("quick\n"));
  release_.Notify();
  EXPECT_THAT(ReadAll(patient.get()), EndsWith("slow\n"));
  EXPECT_THAT(ReadAll(half_closed.get()), EndsWith("slow\n"));
  EXPECT_THAT(Ask("HEAD /slow HTTP/1.1\r\n\r\n"), HasSubstr("Content-Length: 5\r\n"));
}

TEST_F(HttpServerTest, StrangersAreNotReadFurther) {
  Start();
  EXPECT_THAT(Ask("POST /v2 HTTP/1.1\r\nStranger: yes\r\nContent-Length: 1000000\r\n\r\nx"),
              AllOf(StartsWith("HTTP/1.1 401 Unauthorized"), HasSubstr("who are you")));
}

TEST_F(HttpServerTest, APageEndsAConnectionThatWasKept) {
  Start();
  const std::string replies = Ask("GET /v2 HTTP/1.1\r\n\r\nGET /hello HTTP/1.1\r\n\r\n");
  EXPECT_THAT(replies, AllOf(HasSubstr("keep-alive"), HasSubstr("close\r\n\r\nhello\n")));
}

TEST_F(HttpServerTest, RepliesThatNobodyTakesHaveAMemoryTogether) {
  Start();
  const std::string request = "GET /v2/large HTTP/1.1\r\nConnection: close\r\n\r\n";
  FileDescriptor slow = Connect();
  send(slow.get(), request.data(), request.size(), MSG_NOSIGNAL);
  char first;
  ASSERT_EQ(recv(slow.get(), &first, 1, 0), 1);
  EXPECT_THAT(Ask(request), StartsWith("HTTP/1.1 503"));
  EXPECT_GT(ReadAll(slow.get()).size(), size_t{8} << 20);
  EXPECT_THAT(Ask(request), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, PagesThatNobodyTakesHaveAMemoryTogether) {
  Start();
  const std::string request = "GET /large HTTP/1.1\r\n\r\n";
  const FileDescriptor first = Connect(), second = Connect();
  char byte;
  for (const FileDescriptor* fd : {&first, &second}) {
    send(fd->get(), request.data(), request.size(), MSG_NOSIGNAL);
    ASSERT_EQ(recv(fd->get(), &byte, 1, 0), 1);
  }
  EXPECT_THAT(Ask("GET /hello HTTP/1.1\r\n\r\n"), EndsWith("hello\n"));
  EXPECT_LT(ReadAll(second.get()).size(), size_t{8} << 20);
  EXPECT_GE(ReadAll(first.get()).size(), size_t{8} << 20);
}

TEST_F(HttpServerTest, WhoIsNotAnsweredIsTold) {
  Start();
  const FileDescriptor fd = Connect();
  send(fd.get(), "GET /v2/hold HTTP/1.1\r\nConnection: close\r\n\r\n", 44, MSG_NOSIGNAL);
  EXPECT_THAT(Ask("GET /hello HTTP/1.1\r\n\r\n"), EndsWith("hello\n"));
  ASSERT_EQ(held_.size(), 1u);
  held_.clear();
  EXPECT_THAT(ReadAll(fd.get()), AllOf(StartsWith("HTTP/1.1 500"), EndsWith("no answer\n")));
}

TEST_F(HttpServerTest, WhoSendsNothingGoesBeforeWhoIsComputedFor) {
  HttpServer::Limits limits;
  limits.max_connections = 8;
  Start(limits);
  const FileDescriptor held = Connect();
  send(held.get(), "GET /v2/hold HTTP/1.1\r\n\r\n", 26, MSG_NOSIGNAL);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 30; ++i) silent.push_back(Connect());
  EXPECT_THAT(Ask("GET /hello HTTP/1.1\r\n\r\n"), HasSubstr("hello\n"));
  EXPECT_EQ(ReadAll(silent.front().get()), "");
  ASSERT_EQ(held_.size(), 1u);
  EXPECT_FALSE(held_[0]->cancelled());
}

TEST_F(HttpServerTest, ConnectionsOfOneAddressPushOutOnlyTheirOwn) {
  HttpServer::Limits limits;
  limits.max_connections = 20;
  Start(limits);
  const FileDescriptor usual = Connect();
  const std::string request = "GET /hello HTTP/1.1\r\n\r\n";
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 60; ++i) silent.push_back(ConnectTo(http_->port(), 2));
  EXPECT_EQ(ReadAll(silent.front().get()), "");
  EXPECT_THAT(Ask(request), HasSubstr("hello\n"));
  send(usual.get(), request.data(), request.size(), MSG_NOSIGNAL);
  EXPECT_THAT(ReadAll(usual.get()), HasSubstr("hello\n"));
}

TEST_F(HttpServerTest, BodiesHaveAMemoryTogether) {
  Start();
  const std::string body(1 << 20, 'x');
  const std::string request =
      absl::StrCat("POST /v2/hold HTTP/1.1\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
  const FileDescriptor first = Connect();
  send(first.get(), request.data(), request.size(), MSG_NOSIGNAL);
  // Of two that come at once either may be refused.
  for (int i = 0; i < 1000 && held_.empty(); ++i) usleep(10000);
  EXPECT_THAT(Ask(request), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Ask("GET /v2 HTTP/1.1\r\nConnection: close\r\n\r\n"), HasSubstr("GET  0"));
}

TEST_F(HttpServerTest, BodiesThatDoNotEndLeaveRoomForOthers) {
  Start();
  const std::string begun = absl::StrCat("POST /v2/hold HTTP/1.1\r\nContent-Length: ", 1 << 20,
                                         "\r\n\r\n", std::string((3 << 18) - 256, 'x'));
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 2; ++i) {
    silent.push_back(Connect());
    send(silent.back().get(), begun.data(), begun.size(), MSG_NOSIGNAL);
  }
  const std::string body(2048, 'x');
  EXPECT_THAT(Ask(absl::StrCat("POST /v2 HTTP/1.1\r\nConnection: close\r\nContent-Length: ",
                               body.size(), "\r\n\r\n", body)),
              HasSubstr("POST  2048"));
}

TEST_F(HttpServerTest, AnExchangeOutlivesItsConnectionAndItsServer) {
  Start();
  {
    const FileDescriptor fd = Connect();
    send(fd.get(), "GET /v2/hold HTTP/1.1\r\n\r\n", 26, MSG_NOSIGNAL);
    EXPECT_THAT(Ask("GET /hello HTTP/1.1\r\n\r\n"), HasSubstr("hello\n"));
  }
  for (int i = 0; i < 1000 && (held_.empty() || !held_[0]->cancelled()); ++i) usleep(10000);
  ASSERT_EQ(held_.size(), 1u);
  EXPECT_TRUE(held_[0]->cancelled());
  EXPECT_THAT(held_[0]->peer(), StartsWith("ipv4:127.0.0.1:"));
  held_[0]->Reply({});
  http_.reset();
  held_.clear();
}

TEST_F(HttpServerTest, AnswersPages) {
  Start();
  EXPECT_EQ(Ask("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 6\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\nhello\n");
  EXPECT_THAT(Ask("HEAD /hello HTTP/1.0\n\n"), HasSubstr("Content-Length: 6\r\n"));
  EXPECT_THAT(Ask("HEAD /hello HTTP/1.0\n\n"), Not(HasSubstr("hello")));
  EXPECT_THAT(Ask("GET /hello?a=b HTTP/1.1\r\n\r\n"), HasSubstr("hello\n"));
  EXPECT_THAT(Ask("GET /busy HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 503 Service Unavailable"));
  EXPECT_EQ(Ask("GET /large HTTP/1.1\r\n\r\n").size() >> 20, 8u);
}

TEST_F(HttpServerTest, WhoTakesHtmlGetsThePageForPeople) {
  Start();
  const std::string browser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n\r\n";
  EXPECT_THAT(Ask("GET /hello HTTP/1.1\r\n" + browser), HasSubstr("<p>hello"));
  EXPECT_THAT(Ask("GET /hello HTTP/1.1\r\nAccept: */*\r\n\r\n"), Not(HasSubstr("<p>")));
  EXPECT_THAT(Ask("GET /busy HTTP/1.1\r\n" + browser), HasSubstr("busy"));
  EXPECT_THAT(Ask("GET /hello text/html HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpServerTest, RefusesWhatIsNoneOfThem) {
  Start();
  EXPECT_THAT(Ask("GET /hello/there HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 Not Found"));
  EXPECT_THAT(Ask("GET ../hello HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 Not Found"));
  EXPECT_THAT(Ask("POST /hello HTTP/1.1\r\n\r\n"), HasSubstr("Allow: GET, HEAD\r\n"));
  EXPECT_THAT(Ask("hello\r\n\r\n"), StartsWith("HTTP/1.1 400 Bad Request"));
  EXPECT_THAT(Ask("GET /hello SMTP\r\n\r\n"), StartsWith("HTTP/1.1 400 Bad Request"));
  EXPECT_THAT(Ask("GET /hello HTTP/1.1\r\nA: " + std::string(9000, 'x')),
              StartsWith("HTTP/1.1 431 Request Header Fields Too Large"));
  // Also where it ends in the piece that is too long.
  const auto with = [](size_t bytes) {
    return absl::StrCat("GET /hello HTTP/1.1\r\nA: ", std::string(bytes, 'a'), "\r\n\r\n");
  };
  EXPECT_THAT(Ask(with(8100)), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask(with(8300)), StartsWith("HTTP/1.1 431"));
}

TEST_F(HttpServerTest, TheHeadEndsWhereAProxySeesItsEnd) {
  Start();
  for (const char* end : {"\n\n", "\n\r\n", "\r\n\n", "\r\n\r\n"}) {
    const std::string two = absl::StrCat("GET /v2 HTTP/1.1\r\nConnection: close", end,
                                         "X-a: of another request\r\n\r\n");
    EXPECT_THAT(Ask(two), EndsWith("\r\n\r\nGET  0\n")) << absl::CHexEscape(end);
  }
  for (const absl::string_view head :
       {absl::string_view("A: b\rContent-Length: 3"), absl::string_view("A: \0", 4)}) {
    EXPECT_THAT(Ask(absl::StrCat("GET /v2 HTTP/1.1\r\n", head, "\r\n\r\n")),
                StartsWith("HTTP/1.1 400"));
  }
  EXPECT_THAT(Ask("GET /v2 HTTP/1.1\rA:b\r\n\r\n"), StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpServerTest, ARequestMayComeInPieces) {
  Start();
  const FileDescriptor fd = Connect();
  for (char c : std::string("GET /hello HTTP/1.1\r\n\r\n")) send(fd.get(), &c, 1, MSG_NOSIGNAL);
  EXPECT_THAT(ReadAll(fd.get()), HasSubstr("hello\n"));
}

TEST_F(HttpServerTest, SilentCallersKeepNobodyWaiting) {
  HttpServer::Limits limits;
  limits.max_connections = 8;
  limits.request_timeout = std::chrono::minutes(10);
  Start(limits);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 30; ++i) {
    silent.push_back(Connect());
    send(silent.back().get(), "GET /h", 6, MSG_NOSIGNAL);
  }
  EXPECT_THAT(Ask("GET /hello HTTP/1.1\r\n\r\n"), HasSubstr("hello\n"));
  // The first ones had to go; the last one is still waited for.
  EXPECT_EQ(ReadAll(silent.front().get()), "");
  send(silent.back().get(), "ello HTTP/1.1\r\n\r\n", 17, MSG_NOSIGNAL);
  EXPECT_THAT(ReadAll(silent.back().get()), HasSubstr("hello\n"));
}

TEST_F(HttpServerTest, ARequestThatDoesNotEndIsGivenUp) {
  HttpServer::Limits limits;
  limits.request_timeout = milliseconds(50);
  Start(limits);
  EXPECT_EQ(Ask("GET /hello HTTP/1.1\r\nA: "), "");
}

TEST_F(HttpServerTest, AReaderThatDoesNotReadIsGivenUp) {
  HttpServer::Limits limits;
  limits.reply_timeout = milliseconds(50);
  Start(limits);
  const FileDescriptor fd = Connect();
  const std::string request = "GET /large HTTP/1.1\r\n\r\n";
  send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
  EXPECT_THAT(Ask("GET /hello HTTP/1.1\r\n\r\n"), HasSubstr("hello\n"));
  usleep(300 * 1000);
  EXPECT_LT(ReadAll(fd.get()).size(), size_t{8} << 20);
}

TEST_F(HttpServerTest, EndsAtOnce) {
  Start();
  const FileDescriptor fd = Connect();
  EXPECT_THAT(Ask("GET /hello HTTP/1.1\r\n\r\n"), HasSubstr("hello\n"));
  const auto begin = steady_clock::now();
  http_.reset();
  EXPECT_LT(steady_clock::now() - begin, milliseconds(500));
}

TEST(RoomForConnections, LeavesDescriptorsToModels) {
  const std::array<int64_t, 3> cases[] = {{20480, 512, 19712}, {1024, 256, 512}, {256, 64, 128}};
  for (const auto& [files, http, grpc] : cases) {
    EXPECT_EQ(RoomForConnections(files).http, http) << files;
    EXPECT_EQ(RoomForConnections(files).grpc, grpc) << files;
  }
}

TEST(ListenOn, SaysWhyNot) {
  auto first = ListenOn("127.0.0.1", 0, "HTTP");
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string port = std::to_string(first->port);
  EXPECT_EQ(ListenOn("127.0.0.1", first->port, "HTTP").status().message(),
            "cannot listen on 127.0.0.1:" + port + " for HTTP: Address already in use");
  EXPECT_THAT(std::string(ListenOn("nowhere", 1, "gRPC").status().message()),
              StartsWith("cannot listen on nowhere:1 for gRPC: not an IP address"));
  EXPECT_THAT(std::string(ListenOn("192.0.2.1", 0, "gRPC").status().message()),
              HasSubstr("Cannot assign requested address"));
  EXPECT_TRUE(ListenOn("[::]", 0, "gRPC").ok());
}

}  // namespace
}  // namespace ulfd::server
