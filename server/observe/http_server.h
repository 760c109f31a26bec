// The HTTP port: a few pages for probes, scrapers and people.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OBSERVE_HTTP_SERVER_H_
#define ULFD_SERVER_OBSERVE_HTTP_SERVER_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/system/listening_socket.h"

namespace ulfd::server {

struct HttpReply {
  int code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// GET and HEAD of fixed paths over HTTP/1; every other path is 404.  One request per connection.
// One thread makes the pages and waits for every connection at once, so nobody who is slow, or
// sends nothing at all, keeps others waiting.
class HttpServer {
 public:
  using Clock = std::chrono::steady_clock;
  // Called on the server's thread.  Must not block.
  using Page = std::function<HttpReply()>;

  struct Limits {
    int max_connections = 512;     // One more, and the one that has waited longest is closed.
    size_t max_head_bytes = 8192;  // Of a request; 431 above.
    std::chrono::milliseconds request_timeout{5000};
    std::chrono::milliseconds reply_timeout{10000};
  };

  // Listens; port 0: any free one.  UNAVAILABLE: the address cannot be listened on (says why).
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(const std::string& address, int port,
                                                            std::map<std::string, Page> pages,
                                                            const Limits& limits);
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(const std::string& address, int port,
                                                            std::map<std::string, Page> pages) {
    return Create(address, port, std::move(pages), Limits());
  }
  // Waits for the page that is being made; ends at once otherwise.
  ~HttpServer();

  int port() const { return socket_.port; }

 private:
  enum class State { kReading, kWriting, kClosing };
  struct Connection {
    FileDescriptor fd;
    State state = State::kReading;
    Clock::time_point until;
    std::string text;  // The request, then the reply.
    size_t sent = 0;
  };
  HttpServer(ListeningSocket socket, std::map<std::string, Page> pages, const Limits& limits);
  void Loop();
  // Takes some of those that wait.
  void Accept();
  // Of those that still send, those that have their reply, or else those that take it: the one that
  // ends first by itself.
  void CloseOldest();
  // Does what can be done without waiting; false: the connection has ended.
  bool Advance(Connection& connection);
  bool Read(Connection& connection);
  bool Write(Connection& connection);
  std::string ReplyTo(absl::string_view head) const;

  ListeningSocket socket_;
  const std::map<std::string, Page> pages_;
  const Limits limits_;
  FileDescriptor wake_;
  std::vector<Connection> connections_;  // The thread's.
  std::thread thread_;                   // Last: it uses everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OBSERVE_HTTP_SERVER_H_
