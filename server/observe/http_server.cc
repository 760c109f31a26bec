// One poll loop.  Decision 0025 says why it is our own.
// SPDX-License-Identifier: Apache-2.0
#include "server/observe/http_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/load_scope.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "server/system/peer.h"
#include "server/system/threads.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;

// How long a caller may take to notice that the reply is complete.
constexpr milliseconds kClosingTime{1000};
// What replies may need to leave when the server ends.
constexpr milliseconds kLastReplies{300};
// What a caller may still send meanwhile is thrown away.
constexpr milliseconds kNoDescriptors{20};
// What is read of one connection, in pieces of 16 KiB, and how many are accepted, before the others
// have their turn.
constexpr int kPieces = 8;
constexpr int kAccepted = 64;

constexpr std::pair<int, absl::string_view> kReasons[] = {{200, "OK"},
                                                          {400, "Bad Request"},
                                                          {401, "Unauthorized"},
                                                          {403, "Forbidden"},
                                                          {404, "Not Found"},
                                                          {405, "Method Not Allowed"},
                                                          {411, "Length Required"},
                                                          {412, "Precondition Failed"},
                                                          {413, "Content Too Large"},
                                                          {429, "Too Many Requests"},
                                                          {431, "Request Header Fields Too Large"},
                                                          {500, "Internal Server Error"},
                                                          {501, "Not Implemented"},
                                                          {503, "Service Unavailable"},
                                                          {504, "Gateway Timeout"}};

absl::string_view Reason(int code) {
  for (const auto& [known, reason] : kReasons) {
    if (known == code) return reason;
  }
  return "Status";
}

std::string Format(const HttpReply& reply, bool with_body, bool keep) {
  std::string text = absl::StrCat(
      "HTTP/1.1 ", reply.code, " ", Reason(reply.code), "\r\nContent-Type: ", reply.content_type,
      "\r\nContent-Length: ", reply.body.size(), "\r\nCache-Control: no-store\r\n");
  for (const auto& [name, value] : reply.headers) {
    absl::StrAppend(&text, name, ": ", value, "\r\n");
  }
  absl::StrAppend(&text, "Connection: ", keep ? "keep-alive" : "close", "\r\n\r\n",
                  with_body ? reply.body : "");
  return text;
}

}  // namespace

// Thread-safe.
class HttpMailbox {
 public:
  explicit HttpMailbox(uint64_t max_bodies_bytes)
      : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        bodies_(static_cast<int64_t>(max_bodies_bytes)) {}

  int wake_fd() const { return wake_.get(); }
  void Wake() { eventfd_write(wake_.get(), 1); }
  void Put(HttpLetters letters) {
    {
      MutexLock lock(mu_);
      letters_.splice(letters_.end(), letters);
    }
    Wake();
  }
  HttpLetters TakeAll() {
    eventfd_t count = 0;
    eventfd_read(wake_.get(), &count);
    MutexLock lock(mu_);
    return std::exchange(letters_, {});
  }
  SharedRoom& bodies() { return bodies_; }

 private:
  const FileDescriptor wake_;
  SharedRoom bodies_;
  Mutex mu_;
  HttpLetters letters_ ABSL_GUARDED_BY(mu_);
};

HttpExchange::HttpExchange(std::shared_ptr<HttpMailbox> mailbox, uint64_t connection,
                           std::string text, size_t head_bytes, std::string peer,
                           std::string client, std::shared_ptr<const std::atomic<bool>> gone)
    : mailbox_(std::move(mailbox)),
      letter_{{connection, HttpReply{.code = 500, .body = "no answer\n"}}},
      text_(std::move(text)),
      head_bytes_(head_bytes),
      peer_(std::move(peer)),
      client_(std::move(client)),
      gone_(std::move(gone)),
      request_(ParseHead(absl::string_view(text_).substr(0, head_bytes_))) {}

HttpExchange::~HttpExchange() {
  if (!letter_.empty()) mailbox_->Put(std::exchange(letter_, {}));
  mailbox_->bodies().Release(client_, static_cast<int64_t>(body().size()));
}

void HttpExchange::Reply(HttpReply reply) {
  if (letter_.empty()) return;
  letter_.front().content = std::move(reply);
  mailbox_->Put(std::exchange(letter_, {}));
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(const std::string& address, int port,
                                                               Pages pages, Service service,
                                                               const Limits& limits) {
  ASSIGN_OR_RETURN(ListeningSocket socket, ListenOn(address, port, "HTTP"));
  return std::unique_ptr<HttpServer>(
      new HttpServer(std::move(socket), std::move(pages), std::move(service), limits));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): the pages are moved out of it.
HttpServer::HttpServer(ListeningSocket socket, Pages pages, Service service, const Limits& limits)
    : socket_(std::move(socket)),
      service_(std::move(service)),
      limits_(limits),
      mailbox_(std::make_shared<HttpMailbox>(service_.max_bodies_bytes)),
      unsent_(static_cast<int64_t>(limits_.max_unsent_bytes)) {
  for (auto& [path, page] : pages.quick) pages_[path].make = std::move(page);
  for (auto& [path, page] : pages.dear) {
    MadePage& made = pages_[path];
    made.make = std::move(page);
    made.dear = true;
  }
  maker_ = std::thread([this] { MakePages(); });
  thread_ = std::thread([this] { Loop(); });
}

HttpServer::~HttpServer() {
  {
    MutexLock lock(orders_mu_);
    stopping_.store(true);
    ordered_.NotifyAll();
  }
  mailbox_->Wake();
  thread_.join();
  maker_.join();
  while (!connections_.empty()) Drop(0);
}

void HttpServer::Loop() {
  while (true) {
    try {
      return Serve();
    } catch (const std::bad_alloc&) {
      // Some of it may be the oldest one's.  Whoever wanted it waits until its time is over.
      if (!connections_.empty()) CloseOldest();
      std::this_thread::sleep_for(kNoDescriptors);
    }
  }
}

void HttpServer::Serve() {
  std::vector<pollfd> fds;
  auto end = Clock::time_point::max();
  while (true) {
    const bool stopping = stopping_.load();
    if (stopping) end = std::min(end, Clock::now() + kLastReplies);
    if (stopping && (Clock::now() >= end || !Answering())) return;
    const int16_t newcomers = stopping ? 0 : POLLIN;
    fds = {{mailbox_->wake_fd(), POLLIN, 0}, {socket_.fd.get(), newcomers, 0}};
    auto until = end;
    for (const Connection& connection : connections_) {
      // Who waits for a page may have closed its side; a service wants to know of it.
      const int waiting = connection.gone == nullptr ? 0 : POLLRDHUP;
      const int events = connection.state == State::kWriting   ? POLLOUT
                         : connection.state == State::kWaiting ? waiting
                                                               : POLLIN;
      fds.push_back({connection.fd.get(), static_cast<int16_t>(events), 0});
      until = std::min(until, connection.until);
    }
    int wait_ms = -1;
    if (until != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
      wait_ms = static_cast<int>(std::max<milliseconds>(left, milliseconds(0)).count());
    }
    if (poll(fds.data(), fds.size(), wait_ms) < 0 && errno != EINTR) return;
    const auto now = Clock::now();
    // Those with an end of their own go; from the back, so that indices stay right.
    for (size_t i = connections_.size(); i-- > 0;) {
      Connection& connection = connections_[i];
      const bool open = fds[i + 2].revents == 0 || Advance(connection);
      if (!open || now >= connection.until) Drop(i);
    }
    if (fds[0].revents != 0) Deliver();
    if (!stopping && fds[1].revents != 0) Accept();
  }
}

bool HttpServer::Answering() const {
  return std::any_of(connections_.begin(), connections_.end(), [](const Connection& connection) {
    return connection.state == State::kWaiting || connection.state == State::kWriting;
  });
}

void HttpServer::Drop(size_t index) {
  Connection& connection = connections_[index];
  mailbox_->bodies().Release(connection.client, connection.held_bytes);
  unsent_.Release(connection.client, connection.unsent_bytes);
  if (connection.gone != nullptr) connection.gone->store(true, std::memory_order_relaxed);
  std::swap(connection, connections_.back());
  connections_.pop_back();
}

void HttpServer::Deliver() {
  for (HttpLetter& letter : mailbox_->TakeAll()) {
    const auto found = std::find_if(connections_.begin(), connections_.end(),
                                    [&](const Connection& c) { return c.id == letter.connection; });
    if (found == connections_.end() || found->state != State::kWaiting) continue;
    bool open = false;  // Where there is no memory for the reply.
    WithinMemory([&] { open = Answer(*found, letter); }).IgnoreError();
    if (!open) Drop(static_cast<size_t>(found - connections_.begin()));
  }
}

bool HttpServer::Answer(Connection& connection, HttpLetter& letter) {
  if (auto* const page = std::get_if<HttpLetter::PageText>(&letter.content); page != nullptr) {
    return *page != nullptr && AnswerPage(connection, std::move(*page));
  }
  connection.gone.reset();
  std::string text =
      Format(std::get<HttpReply>(letter.content), connection.with_body, connection.keep);
  if (!unsent_.Take(connection.client, static_cast<int64_t>(text.size()))) {
    return Refuse(connection, 503, "replies that others do not take use all memory there is");
  }
  connection.unsent_bytes = static_cast<int64_t>(text.size());
  return Answer(connection, std::move(text));
}

void HttpServer::Accept() {
  for (int i = 0; i < kAccepted; ++i) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    Connection connection{
        .fd = FileDescriptor(accept4(socket_.fd.get(), reinterpret_cast<sockaddr*>(&peer), &size,
                                     SOCK_NONBLOCK | SOCK_CLOEXEC)),
        .id = ++last_id_};
    Enter(connection, State::kHead, limits_.request_timeout);
    if (connection.fd.get() < 0) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno != EMFILE && errno != ENFILE) return;
      if (connections_.empty()) {
        // Nothing closes a connection of somebody else's, but the wait keeps the loop from
        // spinning.
        pollfd stop = {mailbox_->wake_fd(), POLLIN, 0};
        poll(&stop, 1, static_cast<int>(kNoDescriptors.count()));
        return;
      }
      CloseOldest();
      continue;
    }
    connection.peer = PeerName(peer);
    connection.client = ClientOf(connection.peer);
    // Most have sent their request by now: however many come behind them, they have their reply.
    const bool open = Advance(connection);
    if (open) MakeRoomFor(connection.client);
    connections_.push_back(std::move(connection));
    if (!open) Drop(connections_.size() - 1);
  }
}

void HttpServer::MakeRoomFor(const std::string& client) {
  const int64_t own =
      std::count_if(connections_.begin(), connections_.end(),
                    [&](const Connection& connection) { return connection.client == client; });
  if (HasRoom(std::ssize(connections_), own, 1, limits_.max_connections)) return;
  CloseOldest(own > 0 ? absl::string_view(client) : "");
}

void HttpServer::CloseOldest(absl::string_view client) {
  const auto turn = [client](const Connection& connection) {
    return std::tuple(!client.empty() && connection.client != client,
                      connection.state == State::kWaiting, connection.since);
  };
  const auto first =
      std::min_element(connections_.begin(), connections_.end(),
                       [&](const Connection& a, const Connection& b) { return turn(a) < turn(b); });
  Drop(static_cast<size_t>(first - connections_.begin()));
}

void HttpServer::Enter(Connection& connection, State state, Clock::duration longest) {
  connection.state = state;
  connection.since = Clock::now();
  const bool forever = longest == Clock::duration::max();
  connection.until = forever ? Clock::time_point::max() : connection.since + longest;
}

bool HttpServer::Advance(Connection& connection) {
  switch (connection.state) {
    case State::kHead:
    case State::kBody:
      return Read(connection);
    case State::kWaiting:
      return false;  // The client has left.
    case State::kWriting:
      return Write(connection);
    case State::kClosing:
      break;
  }
  // Closing a socket with unread data in it would take back the reply.
  char rest[16384];
  for (int i = 0; i < kPieces; ++i) {
    const ssize_t got = recv(connection.fd.get(), rest, sizeof(rest), 0);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
  }
  return true;
}

bool HttpServer::Read(Connection& connection) {
  for (int i = 0; i < kPieces; ++i) {
    char buffer[16384];
    // Of a body no more than is its own: the rest belongs to the next request.
    const size_t most =
        connection.state == State::kHead
            ? 4096
            : connection.head_bytes + connection.body_bytes - connection.text.size();
    const ssize_t got = recv(connection.fd.get(), buffer, std::min(most, sizeof(buffer)), 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    connection.text.append(buffer, static_cast<size_t>(got));
    if (connection.state == State::kBody) {
      if (!mailbox_->bodies().Take(connection.client, got)) {
        return Refuse(connection, 503, "the bodies of other requests take all memory there is");
      }
      connection.held_bytes += got;
      if (connection.text.size() < connection.head_bytes + connection.body_bytes) continue;
      HandOver(connection);
      return true;
    }
    const size_t end = FindHeadEnd(connection.text);
    if (std::min(end, connection.text.size()) > limits_.max_head_bytes) {
      return Refuse(connection, 431,
                    absl::StrCat("a request head of more than ", limits_.max_head_bytes, " bytes"));
    }
    if (end != std::string::npos) return TakeHead(connection);
  }
  return true;
}

bool HttpServer::IsOfService(absl::string_view path) const {
  return !service_.prefix.empty() && absl::ConsumePrefix(&path, service_.prefix) &&
         (path.empty() || path[0] == '/');
}

bool HttpServer::TakeHead(Connection& connection) {
  const size_t head_bytes = FindHeadEnd(connection.text);
  const HttpRequest request = ParseHead(absl::string_view(connection.text).substr(0, head_bytes));
  connection.keep = false;
  if (request.refused == 400) {
    return Refuse(connection, 400, "want METHOD PATH HTTP/1.1, and headers that say one thing");
  }
  if (request.refused == 501) return Refuse(connection, 501, "want Content-Length, no chunks");
  connection.head_bytes = head_bytes;
  if (IsOfService(request.path)) return TakeServiceHead(connection, request);
  if (request.method != "GET" && request.method != "HEAD") {
    return Answer(
        connection,
        Format({.code = 405, .body = "want GET or HEAD\n", .headers = {{"Allow", "GET, HEAD"}}},
               true, false));
  }
  const bool with_body = request.method == "GET";
  MadePage* const page = FindPage(request.path, request.Header("accept"));
  if (page == nullptr) {
    return Answer(connection,
                  Format({.code = 404, .body = "no such page\n"}, with_body, /*keep=*/false));
  }
  connection.with_body = with_body;
  return page->dear ? OrderPage(connection, *page) : AnswerPage(connection, TextOf(*page));
}

bool HttpServer::AnswerPage(Connection& connection, std::shared_ptr<const std::string> text) {
  const auto bytes = static_cast<int64_t>(text->size());
  const bool open = connection.with_body ? Answer(connection, std::move(text))
                                         : Answer(connection, text->substr(0, FindHeadEnd(*text)));
  if (!open || connection.state != State::kWriting) return open;
  // Those who share the text share no room: it lasts as long as any of them.
  if (!unsent_.Take(connection.client, bytes)) return false;
  connection.unsent_bytes = bytes;
  return true;
}

bool HttpServer::OrderPage(Connection& connection, MadePage& page) {
  {
    MutexLock lock(orders_mu_);
    // Who has left since counts, too.
    if (orders_.size() < static_cast<size_t>(limits_.max_connections)) {
      orders_.push_back({&page, {{connection.id, HttpLetter::PageText()}}});
      ordered_.NotifyAll();
      connection.text = {};
      Enter(connection, State::kWaiting, Clock::duration::max());
      return true;
    }
  }
  return Refuse(connection, 503, "too many wait for pages");
}

void HttpServer::MakePages() {
  while (true) {
    Order order;
    {
      MutexLock lock(orders_mu_);
      while (orders_.empty() && !stopping_.load()) ordered_.Wait(orders_mu_);
      if (stopping_.load()) return;
      order = std::move(orders_.front());
      orders_.pop_front();
    }
    WithinMemory([&] { order.letter.front().content = TextOf(*order.page); }).IgnoreError();
    mailbox_->Put(std::move(order.letter));
  }
}

HttpServer::MadePage* HttpServer::FindPage(absl::string_view path, absl::string_view accept) {
  const auto plain = pages_.find(std::string(path));
  if (plain == pages_.end()) return nullptr;
  const std::string typed = absl::StrCat(path, " ");
  for (auto it = pages_.lower_bound(typed);
       it != pages_.end() && absl::StartsWith(it->first, typed); ++it) {
    if (absl::StrContains(accept, absl::string_view(it->first).substr(typed.size()))) {
      return &it->second;
    }
  }
  return &plain->second;
}

std::shared_ptr<const std::string> HttpServer::TextOf(MadePage& page) {
  // Who asks for a dear page without end gets the last one again: making it must not keep the
  // thread from others, nor all its copies take memory.
  constexpr milliseconds kMost{50};
  constexpr int kShare = 4;  // One in so many, of a CPU.
  const auto begin = Clock::now();
  page.spent -= std::min<Clock::duration>(page.spent, (begin - page.asked) / kShare);
  page.asked = begin;
  if (page.text == nullptr || page.spent < kMost) {
    const auto cpu = CpuTimeOfThisThread();
    page.text = std::make_shared<const std::string>(Format(page.make(), true, /*keep=*/false));
    page.spent += CpuTimeOfThisThread() - cpu;
  }
  return page.text;
}

bool HttpServer::TakeServiceHead(Connection& connection, const HttpRequest& request) {
  connection.with_body = request.method != "HEAD";
  if (const auto refused = service_.admit(request, connection.peer); refused.has_value()) {
    return Answer(connection, Format(*refused, connection.with_body, false));
  }
  if (request.method == "POST" && !request.content_length.has_value()) {
    return Refuse(connection, 411, "want Content-Length");
  }
  const uint64_t body = request.content_length.value_or(0);
  if (body > service_.max_body_bytes) {
    return Refuse(connection, 413,
                  absl::StrCat("a body of ", body, " bytes, want at most ", service_.max_body_bytes,
                               " (limits.max_message_bytes)"));
  }
  connection.body_bytes = body;
  connection.keep = request.keep_alive;
  const size_t end = connection.head_bytes + body;
  if (connection.text.size() > end) {
    connection.ahead = connection.text.substr(end);
    connection.text.resize(end);
  }
  const auto read = static_cast<int64_t>(connection.text.size() - connection.head_bytes);
  if (!mailbox_->bodies().Take(connection.client, read)) {
    return Refuse(connection, 503, "the bodies of other requests take all memory there is");
  }
  connection.held_bytes = read;
  if (connection.text.size() == end) {
    HandOver(connection);
    return true;
  }
  Enter(connection, State::kBody, limits_.body_timeout);
  if (absl::EqualsIgnoreCase(request.Header("expect"), "100-continue")) {
    constexpr absl::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
    send(connection.fd.get(), kGoOn.data(), kGoOn.size(), MSG_NOSIGNAL);
  }
  return Read(connection);
}

void HttpServer::HandOver(Connection& connection) {
  connection.gone = std::make_shared<std::atomic<bool>>(false);
  auto exchange = std::make_unique<HttpExchange>(
      mailbox_, connection.id, std::exchange(connection.text, {}), connection.head_bytes,
      connection.peer, connection.client, connection.gone);
  Enter(connection, State::kWaiting, Clock::duration::max());
  connection.held_bytes = 0;  // The exchange holds them now.
  service_.take(std::move(exchange));
}

bool HttpServer::Refuse(Connection& connection, int code, const std::string& why) {
  connection.keep = false;
  return Answer(connection, Format({.code = code, .body = why + "\n"}, true, false));
}

bool HttpServer::Answer(Connection& connection, std::shared_ptr<const std::string> reply) {
  mailbox_->bodies().Release(connection.client, std::exchange(connection.held_bytes, 0));
  connection.text = {};
  connection.reply = std::move(reply);
  connection.sent = 0;
  Enter(connection, State::kWriting, limits_.reply_timeout);
  return Write(connection);
}

bool HttpServer::Write(Connection& connection) {
  const std::string& reply = *connection.reply;
  while (connection.sent < reply.size()) {
    const ssize_t sent = send(connection.fd.get(), reply.data() + connection.sent,
                              reply.size() - connection.sent, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<size_t>(sent);
  }
  connection.reply.reset();
  unsent_.Release(connection.client, std::exchange(connection.unsent_bytes, 0));
  if (connection.keep) {
    Enter(connection, State::kHead, limits_.idle_timeout);
    connection.text = std::exchange(connection.ahead, {});
    // Requests that came together: what answers them is somebody else's, so this does not recur.
    if (FindHeadEnd(connection.text) != std::string::npos) return TakeHead(connection);
    return true;
  }
  shutdown(connection.fd.get(), SHUT_WR);
  Enter(connection, State::kClosing, kClosingTime);
  return Advance(connection);
}

}  // namespace ulfd::server
