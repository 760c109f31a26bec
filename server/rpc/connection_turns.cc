// Functions of gRPC's own HTTP/2 that the library calls through the dynamic linker, which takes the
// program's first (decisions 0090, 0091).
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_turns.h"

#include <grpc/slice.h>
#include <grpc/slice_buffer.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "server/rpc/header_limit.h"
#include "server/rpc/of_library.h"

struct grpc_endpoint;
struct grpc_pollset;
struct grpc_pollset_worker;
struct grpc_transport;

// As much of gRPC's declarations as callers need.
struct grpc_closure {  // NOLINT(readability-identifier-naming): its name.
  void* next;          // The library's.
  void (*run)(void* with, absl::Status status);
  void* with;
  // The library's: a status, and what it asserts about closures where it was built to.
  uintptr_t more[6];
};
struct grpc_chttp2_transport {  // NOLINT(readability-identifier-naming): its name.
  ~grpc_chttp2_transport();     // Begins with a grpc_transport.
};
absl::Status grpc_chttp2_perform_read(grpc_chttp2_transport* transport, const grpc_slice& slice);
grpc_endpoint* grpc_transport_get_endpoint(grpc_transport* transport);
int grpc_endpoint_get_fd(grpc_endpoint* endpoint);
// Fills `bytes` and runs `done`, once there are some.
void grpc_endpoint_read(grpc_endpoint* endpoint, grpc_slice_buffer* bytes, grpc_closure* done,
                        bool urgent, int min_progress_bytes);

namespace grpc_core {

class DebugLocation {};
class ExecCtx {
 public:
  // Soon, on this thread.
  static void Run(const DebugLocation& location, grpc_closure* closure, absl::Status status);
};
struct Timestamp {
  int64_t ms;
};

}  // namespace grpc_core

// Waits for what comes, once no call waits for this thread.
absl::Status grpc_pollset_work(grpc_pollset* pollset, grpc_pollset_worker** worker,
                               grpc_core::Timestamp deadline);

namespace ulfd::server {
namespace {

constexpr size_t kPrefaceBytes = 24;
constexpr size_t kLengthBytes = 3, kHeadBytes = 9;
constexpr uint8_t kHeaders = 1, kReset = 3;  // The frames that begin calls, and end them.
// A connection ends after so many looks that read nothing: others come first.  gRPC asks the system
// for up to 100 events at a time, handles one of them a look, and none if another thread kicked it.
constexpr int kQuietLooks = 3, kMostLooks = 100;

// A library's functions have no object to keep anything in.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<int64_t> ended_for_frames{0};

// Which turn this thread gives; 0: it receives no calls.
thread_local int64_t this_turn = 0;
std::atomic<int64_t> last_turn{0};
// Looks since this thread ended a connection, and since it read one.
thread_local int looks = 0, quiet_looks = 0;

// One thread at a time reads a connection.
struct Connection {
  explicit Connection(grpc_chttp2_transport* transport) : headers(transport) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { grpc_slice_buffer_destroy(&rest); }

  FrameCount frames;
  ConnectionHeaders headers;
  int64_t turn = -1;  // The last one that it had, and what is left of it.
  FrameCount::Turn left;
  // What waits for its next turn.
  grpc_slice_buffer rest = [] {
    grpc_slice_buffer none;
    grpc_slice_buffer_init(&none);
    return none;
  }();
  absl::Status ended;      // Why nothing more is read.
  bool is_unread = false;  // It has a rest or has ended, and the next read is to find that.
};

// A connection with more than one turn's worth waits for the next, or one that has ended for the
// turn in which its calls are cancelled.
struct Waiting {
  grpc_closure* read;
  absl::Status ended;
  int fd = -1;
  grpc_slice_buffer* bytes = nullptr;
};

class Connections {
 public:
  Connection& Of(grpc_chttp2_transport* transport) {
    MutexLock lock(mu_);
    std::unique_ptr<Connection>& connection = connections_[EndpointOf(transport)];
    if (connection == nullptr) connection = std::make_unique<Connection>(transport);
    return *connection;
  }
  void End(grpc_chttp2_transport* transport) {
    MutexLock lock(mu_);
    const auto it = connections_.find(EndpointOf(transport));
    if (it == connections_.end()) return;
    unread_ -= it->second->is_unread ? 1 : 0;
    connections_.erase(it);
  }
  // Whose calls came to us.
  bool HasClient(const grpc_endpoint* endpoint) {
    MutexLock lock(mu_);
    const auto it = connections_.find(endpoint);
    return it != connections_.end() && it->second->frames.of_client();
  }
  void Keep(Connection& connection) {
    MutexLock lock(mu_);
    unread_ += connection.is_unread ? 0 : 1;
    connection.is_unread = true;
  }
  // What waits of it, if something does.
  std::optional<Waiting> TakeUnread(grpc_endpoint* endpoint, grpc_slice_buffer* bytes,
                                    grpc_closure* read) {
    if (unread_ == 0) return std::nullopt;
    MutexLock lock(mu_);
    const auto it = connections_.find(endpoint);
    if (it == connections_.end() || !it->second->is_unread) return std::nullopt;
    Connection& connection = *it->second;
    connection.is_unread = false;
    --unread_;
    if (!connection.ended.ok()) return Waiting{.read = read, .ended = connection.ended};
    grpc_slice_buffer_swap(bytes, &connection.rest);
    return Waiting{.read = read, .ended = {}, .fd = grpc_endpoint_get_fd(endpoint), .bytes = bytes};
  }
  // For a turn.
  void Wait(Waiting waiting) {
    MutexLock lock(mu_);
    (waiting.ended.ok() ? waiting_ : ended_).push_back(std::move(waiting));
    any_waiting_.store(true, std::memory_order_release);
    if (this_turn != 0) return;
    for (const std::function<void()>* wake : wakers_) (*wake)();
  }
  void Add(const std::function<void()>* waker) {
    MutexLock lock(mu_);
    wakers_.insert(waker);
  }
  void Remove(const std::function<void()>* waker) {
    MutexLock lock(mu_);
    wakers_.erase(waker);
  }
  bool any_waiting() const { return any_waiting_.load(std::memory_order_acquire); }
  // One that has ended only if nothing else is going on.
  std::optional<Waiting> Next(bool quiet) {
    MutexLock lock(mu_);
    std::deque<Waiting>& from = quiet && !ended_.empty() ? ended_ : waiting_;
    if (from.empty()) return std::nullopt;
    Waiting next = std::move(from.front());
    from.pop_front();
    any_waiting_.store(!waiting_.empty() || !ended_.empty(), std::memory_order_release);
    return next;
  }

 private:
  static const grpc_endpoint* EndpointOf(grpc_chttp2_transport* transport) {
    return grpc_transport_get_endpoint(reinterpret_cast<grpc_transport*>(transport));
  }

  Mutex mu_;
  std::unordered_map<const grpc_endpoint*, std::unique_ptr<Connection>> connections_
      ABSL_GUARDED_BY(mu_);
  std::atomic<int> unread_{0};  // So many of them are.
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_), ended_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> any_waiting_{false};
  std::set<const std::function<void()>*> wakers_ ABSL_GUARDED_BY(mu_);
};

Connections& connections() {
  static auto* all = new Connections;  // gRPC's threads may outlive static objects.
  return *all;
}

// Of a peer that has gone nothing more is read, as its calls would be answered for nobody, and the
// connection goes behind all that have not ended.
void GiveTurn(Waiting next) {
  pollfd look{next.fd, POLLRDHUP, 0};
  if (!next.ended.ok() || poll(&look, 1, 0) <= 0) {
    return grpc_core::ExecCtx::Run({}, next.read, std::move(next.ended));
  }
  grpc_slice_buffer_reset_and_unref(next.bytes);
  next.ended = Unavailable("the peer has gone");
  connections().Wait(std::move(next));
}

// What gRPC runs when it has read a connection.
class Reading {
 public:
  // Deletes itself once that has come.
  static grpc_closure* New(const grpc_endpoint* endpoint, grpc_closure* done) {
    return &(new Reading(endpoint, done))->closure_;
  }

 private:
  Reading(const grpc_endpoint* endpoint, grpc_closure* done) : endpoint_(endpoint), done_(done) {}

  static void Run(void* self, absl::Status status) {
    const std::unique_ptr<Reading> reading(static_cast<Reading*>(self));
    grpc_closure* const done = reading->done_;
    quiet_looks = 0;
    if (status.ok() || !connections().HasClient(reading->endpoint_)) {
      return done->run(done->with, std::move(status));
    }
    connections().Wait({.read = done, .ended = std::move(status)});
  }

  grpc_closure closure_{.next = nullptr, .run = &Run, .with = this, .more = {}};
  const grpc_endpoint* const endpoint_;
  grpc_closure* const done_;
};

}  // namespace

size_t FrameCount::Add(const uint8_t* bytes, size_t size, TimePoint now, Turn& turn) {
  size = std::min(size, turn.bytes);
  if (size == 0) return 0;
  if (!begun_) {
    // A client's preface; no frame is as long as it would be as one.
    of_client_ = *bytes == 'P';
    if (of_client_) left_ = kPrefaceBytes;
    begun_ = true;
    last_ = now;
  }
  const std::chrono::duration<double> since = now - last_;
  const auto paid = std::min<double>(since.count() * kFreePerSecond, kMostOwed);
  owed_bytes_ = std::max<int64_t>(0, owed_bytes_ - static_cast<int64_t>(paid * kPaidBytes));
  last_ = now;
  const uint8_t* const begin = bytes;
  for (const uint8_t* const end = bytes + size;;) {
    const size_t passed = std::min(left_, static_cast<size_t>(end - bytes));
    left_ -= passed;
    bytes += passed;
    if (bytes == end) break;
    if (head_ < kLengthBytes) length_ = length_ << 8 | *bytes;
    if (head_ == kLengthBytes && (*bytes == kHeaders || *bytes == kReset) && turn.calls-- == 0) {
      turn = {.calls = 0, .bytes = 0};
      return static_cast<size_t>(bytes - begin);
    }
    ++bytes;
    if (++head_ == kHeadBytes) Begin(length_);
  }
  turn.bytes -= size;
  return size;
}

void FrameCount::Begin(size_t length) {
  owed_bytes_ = std::max<int64_t>(0, owed_bytes_ + kPaidBytes - static_cast<int64_t>(length));
  left_ = length;
  head_ = 0;
  length_ = 0;
}

TurnWaker::TurnWaker(std::function<void()> wake) : wake_(std::move(wake)) {
  connections().Add(&wake_);
}

TurnWaker::~TurnWaker() { connections().Remove(&wake_); }

bool TurnsWait() { return connections().any_waiting(); }

int64_t EndedForFrames() { return ended_for_frames.load(std::memory_order_relaxed); }

}  // namespace ulfd::server

grpc_chttp2_transport::~grpc_chttp2_transport() {
  static auto* const end =
      ulfd::server::OfLibrary<void(grpc_chttp2_transport*)>("_ZN21grpc_chttp2_transportD1Ev");
  ulfd::server::connections().End(this);
  end(this);
}

absl::Status grpc_chttp2_perform_read(grpc_chttp2_transport* transport, const grpc_slice& slice) {
  static auto* const read =
      ulfd::server::OfLibrary<absl::Status(grpc_chttp2_transport*, const grpc_slice&)>(
          "_Z24grpc_chttp2_perform_readP21grpc_chttp2_transportRK10grpc_slice");
  ulfd::server::Connection& connection = ulfd::server::connections().Of(transport);
  if (!connection.ended.ok()) return absl::OkStatus();
  const size_t size = GRPC_SLICE_LENGTH(slice);
  // Threads that do not receive calls have no numbers: each read is a turn.  What is kept comes
  // before all that is read behind it.
  const int64_t turn = ulfd::server::this_turn;
  const bool next = turn != connection.turn || turn == 0;
  if (next && connection.rest.length == 0) connection.left = {};
  connection.turn = turn;
  const size_t now = connection.frames.Add(GRPC_SLICE_START_PTR(slice), size,
                                           std::chrono::steady_clock::now(), connection.left);
  if (connection.frames.too_many()) {
    ulfd::server::ended_for_frames.fetch_add(1, std::memory_order_relaxed);
    connection.ended = ulfd::ResourceExhausted("frames: more than their bytes and time allow");
  } else {
    const ulfd::server::HeaderReading reading(connection.headers);
    const grpc_slice part = grpc_slice_sub(slice, 0, now);
    if (now > 0) connection.ended = read(transport, part);
    grpc_slice_unref(part);
    if (now < size) grpc_slice_buffer_add(&connection.rest, grpc_slice_sub(slice, now, size));
  }
  if (now < size || !connection.ended.ok()) ulfd::server::connections().Keep(connection);
  return absl::OkStatus();
}

void grpc_endpoint_read(grpc_endpoint* endpoint, grpc_slice_buffer* bytes, grpc_closure* done,
                        bool urgent, int min_progress_bytes) {
  static auto* const read =
      ulfd::server::OfLibrary<void(grpc_endpoint*, grpc_slice_buffer*, grpc_closure*, bool, int)>(
          "_Z18grpc_endpoint_readP13grpc_endpointP17grpc_slice_bufferP12grpc_closurebi");
  auto waiting = ulfd::server::connections().TakeUnread(endpoint, bytes, done);
  if (!waiting.has_value()) {
    return read(endpoint, bytes, ulfd::server::Reading::New(endpoint, done), urgent,
                min_progress_bytes);
  }
  if (ulfd::server::this_turn == 0 && !ulfd::server::connections().HasClient(endpoint)) {
    return grpc_core::ExecCtx::Run({}, done, waiting->ended);
  }
  ulfd::server::connections().Wait(*std::move(waiting));
}

absl::Status grpc_pollset_work(grpc_pollset* pollset, grpc_pollset_worker** worker,
                               grpc_core::Timestamp deadline) {
  static auto* const work = ulfd::server::OfLibrary<absl::Status(
      grpc_pollset*, grpc_pollset_worker**, grpc_core::Timestamp)>(
      "_Z17grpc_pollset_workP12grpc_pollsetPP19grpc_pollset_workerN9grpc_core9TimestampE");
  ulfd::server::this_turn = ++ulfd::server::last_turn;
  if (ulfd::server::connections().any_waiting()) {
    const bool quiet = ++ulfd::server::quiet_looks > ulfd::server::kQuietLooks ||
                       ++ulfd::server::looks > ulfd::server::kMostLooks;
    if (quiet) ulfd::server::looks = ulfd::server::quiet_looks = 0;
    if (auto next = ulfd::server::connections().Next(quiet); next.has_value()) {
      ulfd::server::GiveTurn(*std::move(next));
      // Kicked before, it leaves what it was to run; a second time it does not.
      absl::Status worked = work(pollset, worker, {0});
      if (!worked.ok()) return worked;
    }
    deadline = {0};  // Looks for what else has come, and does not wait.
  }
  return work(pollset, worker, deadline);
}
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)
