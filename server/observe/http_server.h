// The HTTP port: a few pages for probes, scrapers and people, and a service that takes requests
// with bodies.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OBSERVE_HTTP_SERVER_H_
#define ULFD_SERVER_OBSERVE_HTTP_SERVER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "server/observe/http_request.h"
#include "server/system/listening_socket.h"
#include "server/system/room_share.h"

namespace ulfd::server {

struct HttpReply {
  int code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};  // Further ones.
};

// What replies from other threads and the server share; outlives both.
class HttpMailbox;

// What a connection waits for.
struct HttpLetter {
  using PageText = std::shared_ptr<const std::string>;  // Null: there was no memory for it.
  uint64_t connection = 0;
  std::variant<HttpReply, PageText> content;
};
// A letter that is there beforehand needs no memory to be sent.
using HttpLetters = std::list<HttpLetter>;

// A request of the service, with its body, until it is answered.
class HttpExchange {
 public:
  // `text`: head and body.
  HttpExchange(std::shared_ptr<HttpMailbox> mailbox, uint64_t connection, std::string text,
               size_t head_bytes, std::string peer, std::string client,
               std::shared_ptr<const std::atomic<bool>> gone);
  // One that was not answered is answered with 500.
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  const HttpRequest& request() const { return request_; }
  absl::string_view body() const { return absl::string_view(text_).substr(head_bytes_); }
  const std::string& peer() const { return peer_; }  // PeerName
  // Whether the client has left.  Any thread.
  bool cancelled() const { return gone_->load(std::memory_order_relaxed); }
  // Once, from any thread.
  void Reply(HttpReply reply);

 private:
  const std::shared_ptr<HttpMailbox> mailbox_;
  HttpLetters letter_;  // Until it is answered.
  std::string text_;
  const size_t head_bytes_;
  const std::string peer_, client_;
  const std::shared_ptr<const std::atomic<bool>> gone_;
  const HttpRequest request_;
};

// GET and HEAD of fixed paths over HTTP/1, one request per connection; who accepts a media type
// TYPE gets the page "PATH TYPE" instead of "PATH", if there is one.  Below the prefix of the
// service GET and POST, as many as the client sends.  Every other path is 404.  One thread waits
// for every connection at once, so nobody who is slow, or silent, keeps others waiting; another one
// makes the pages that may be dear.
class HttpServer {
 public:
  using Clock = std::chrono::steady_clock;
  using Page = std::function<HttpReply()>;
  struct Pages {
    std::map<std::string, Page> quick;  // Made on the server's thread, must take microseconds.
    std::map<std::string, Page> dear;   // One after the other, on a thread of their own.
  };

  struct Limits {
    int max_connections = 512;     // One more, and the one that has waited longest is closed.
    size_t max_head_bytes = 8192;  // Of a request; 431 above.
    std::chrono::milliseconds request_timeout{5000};
    std::chrono::milliseconds body_timeout{10000};
    std::chrono::milliseconds idle_timeout{30000};  // Between two requests of a connection.
    std::chrono::milliseconds reply_timeout{10000};
    // Of all replies that wait to be sent.  Where there is no room left for a client (HasRoom) the
    // service's are 503, and pages that do not leave at once are cut off.
    uint64_t max_unsent_bytes = 64 << 20;
  };
  // Paths that are `prefix` or lie below it.
  struct Service {
    std::string prefix;           // "/v2"; empty: no service.
    uint64_t max_body_bytes = 0;  // Of one request; 413 above.
    // Of all that are read or not answered; 503 where there is no room left for a client (HasRoom).
    uint64_t max_bodies_bytes = 0;
    // Both are called on the server's thread, and must not block.
    // Before the body is read: nullopt, or the reply that refuses the request.
    std::function<std::optional<HttpReply>(const HttpRequest& request, const std::string& peer)>
        admit;
    std::function<void(std::unique_ptr<HttpExchange>)> take;
  };

  // Listens; port 0: any free one.  UNAVAILABLE: the address cannot be listened on (says why).
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(const std::string& address, int port,
                                                            Pages pages, Service service,
                                                            const Limits& limits);
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(const std::string& address, int port,
                                                            Pages pages, Service service) {
    return Create(address, port, std::move(pages), std::move(service), Limits());
  }
  // Waits for the page that is being made, and a moment for replies to leave; ends at once
  // otherwise.  Exchanges may live on.
  ~HttpServer();

  int port() const { return socket_.port; }

 private:
  enum class State { kHead, kBody, kWaiting, kWriting, kClosing };
  struct Connection {
    FileDescriptor fd;
    uint64_t id = 0;
    std::string peer, client;  // PeerName, ClientOf
    State state = State::kHead;
    Clock::time_point since, until;  // Of the state.
    std::string text;                // The request.
    std::shared_ptr<const std::string> reply;
    size_t sent = 0;                          // Of the reply.
    size_t head_bytes = 0, body_bytes = 0;    // Of the request; kBody.
    std::string ahead;                        // What came behind the request.
    bool with_body = true;                    // Of the reply.
    bool keep = false;                        // Another request may come when this one is answered.
    int64_t held_bytes = 0;                   // Of bodies.
    int64_t unsent_bytes = 0;                 // Of replies.
    std::shared_ptr<std::atomic<bool>> gone;  // kWaiting
  };
  struct MadePage {
    Page make;
    bool dear = false;                        // The maker's thread has it.
    std::shared_ptr<const std::string> text;  // As it was made last; null: never.
    Clock::duration spent{};                  // On making it, less a share of the time since.
    Clock::time_point asked;                  // The last time.
  };
  // A dear page that a connection waits for.
  struct Order {
    MadePage* page = nullptr;
    HttpLetters letter;
  };
  HttpServer(ListeningSocket socket, Pages pages, Service service, const Limits& limits);
  void MakePages();  // The maker's loop.
  // Has the maker make it for the connection.
  bool OrderPage(Connection& connection, MadePage& page);
  void Loop();
  void Serve();  // Until it is to stop, or there is no memory.
  // Whether somebody waits for a reply, or takes it.
  bool Answering() const;
  // Takes some of those that wait.
  void Accept();
  // For one more of the client: where HasRoom leaves none, one of its own goes, or of all.
  void MakeRoomFor(const std::string& client);
  // The one that has been in its state for longest, of those that are not computed for if there
  // are any; of the client's, or, without a name, of all.
  void CloseOldest(absl::string_view client = "");
  // The connection at that place ends.
  void Drop(size_t index);
  // Does what can be done without waiting; false: the connection has ended.
  bool Advance(Connection& connection);
  static void Enter(Connection& connection, State state, Clock::duration longest);
  bool Read(Connection& connection);
  // The head is complete.
  bool TakeHead(Connection& connection);
  bool TakeServiceHead(Connection& connection, const HttpRequest& request);
  // The whole request is there.
  void HandOver(Connection& connection);
  // The page of that path that suits the "accept" header best; null: no such path.
  MadePage* FindPage(absl::string_view path, absl::string_view accept);
  static std::shared_ptr<const std::string> TextOf(MadePage& page);
  bool Answer(Connection& connection, std::shared_ptr<const std::string> reply);
  bool AnswerPage(Connection& connection, std::shared_ptr<const std::string> text);
  bool Answer(Connection& connection, HttpLetter& letter);
  bool Answer(Connection& connection, std::string reply) {
    return Answer(connection, std::make_shared<const std::string>(std::move(reply)));
  }
  bool Refuse(Connection& connection, int code, const std::string& why);
  bool Write(Connection& connection);
  void Deliver();
  bool IsOfService(absl::string_view path) const;

  ListeningSocket socket_;
  const Service service_;
  const Limits limits_;
  const std::shared_ptr<HttpMailbox> mailbox_;
  uint64_t last_id_ = 0;
  std::atomic<bool> stopping_{false};
  Mutex orders_mu_;
  CondVar ordered_;  // An order came, or stopping.
  std::deque<Order> orders_ ABSL_GUARDED_BY(orders_mu_);
  std::map<std::string, MadePage> pages_;  // But for the dear ones the thread's, as these.
  SharedRoom unsent_;
  std::vector<Connection> connections_;
  std::thread maker_, thread_;  // Last: they use everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OBSERVE_HTTP_SERVER_H_
