// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/call_ledger.h"

#include <atomic>

#include "server/system/peer.h"

namespace ulfd::server {

class CallLedger::Connection {
 public:
  std::string peer, client;  // The latter: ClientOf.
  Caller* caller = nullptr;  // That of its address.
  int64_t calls = 0, bytes = 0, received = 0;
  std::atomic<int64_t> message_bytes{0};
  // It is being closed: its bytes count no longer, or it would take others with it.
  bool closing = false;
  bool gone = false;  // Nobody looks at it any more.
};

CallLedger::CallLedger(const CallBudget& budget)
    : budget_(budget), requests_(budget.request_bytes) {}

CallLedger::~CallLedger() = default;

CallLedger::Connection* CallLedger::Begin(const std::string& peer, bool* closing) {
  Connection* begun;
  std::optional<Verdict> verdict;
  {
    MutexLock lock(mu_);
    std::unique_ptr<Connection>& slot = connections_[peer];
    if (slot == nullptr) {
      slot = std::make_unique<Connection>();
      slot->peer = peer;
      slot->client = ClientOf(peer);
      slot->caller = &callers_[AddressOf(peer)];
      ++slot->caller->connections;
    }
    begun = slot.get();
    begun->gone = false;
    ++begun->calls;
    ++begun->received;
    verdict = Add(*begun, kCallBytes);
    if (closing != nullptr) *closing = begun->closing;
  }
  Execute(verdict);
  return begun;
}

void CallLedger::Hold(Connection* connection, int64_t bytes) {
  std::optional<Verdict> verdict;
  {
    MutexLock lock(mu_);
    verdict = Add(*connection, bytes);
  }
  Execute(verdict);
}

void CallLedger::End(Connection* connection, int64_t held_bytes) {
  MutexLock lock(mu_);
  Count(*connection, -kCallBytes - held_bytes);
  --connection->calls;
  MaybeErase(*connection);
}

void CallLedger::Count(Connection& connection, int64_t bytes) {
  connection.bytes += bytes;
  if (connection.closing) return;
  connection.caller->bytes += bytes;
  total_ += bytes;
}

std::optional<CallLedger::Verdict> CallLedger::Add(Connection& connection, int64_t bytes) {
  Count(connection, bytes);
  if (connection.closing) return std::nullopt;
  if (connection.calls > budget_.connection_calls) return Doom(connection, "calls");
  // Its only reply is never too large.
  if (connection.calls > 1 && connection.bytes > budget_.connection_bytes) {
    return Doom(connection, "unsent");
  }
  if (connection.caller->bytes > budget_.caller_bytes) {
    return Doom(Largest(connection.caller), "unsent");
  }
  if (total_ > budget_.total_bytes) return Doom(Largest(nullptr), "unsent");
  return std::nullopt;
}

// Of those that count the largest, not the one that happens to come last.
CallLedger::Connection& CallLedger::Largest(const Caller* caller) {
  Connection* most = nullptr;
  for (const auto& [peer, other] : connections_) {
    if (other->closing || (caller != nullptr && other->caller != caller)) continue;
    if (most == nullptr || other->bytes > most->bytes) most = other.get();
  }
  return *most;
}

CallLedger::Verdict CallLedger::Doom(Connection& connection, const char* why) {
  connection.caller->bytes -= connection.bytes;
  total_ -= connection.bytes;
  connection.closing = true;
  return {connection.peer, why};
}

void CallLedger::Execute(const std::optional<Verdict>& verdict) const {
  if (verdict.has_value() && close_) close_(verdict->peer, verdict->why);
}

void CallLedger::MaybeErase(Connection& connection) {
  if (connection.calls > 0) return;
  // A connection that was closed for its calls may be followed by one from the same port.
  connection.closing = false;
  if (!connection.gone) return;
  const std::string peer = connection.peer;
  if (--connection.caller->connections == 0) callers_.erase(AddressOf(peer));
  connections_.erase(peer);
}

void CallLedger::Receive(Connection* connection, int64_t bytes) {
  connection->message_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

bool CallLedger::ReserveRequest(Connection* connection, int64_t bytes) {
  return requests_.Take(connection->client, bytes);
}

void CallLedger::ReleaseRequest(Connection* connection, int64_t bytes) {
  requests_.Release(connection->client, bytes);
}

CallLedger::Counts CallLedger::CountsOf(const std::string& peer) const {
  MutexLock lock(mu_);
  const auto it = connections_.find(peer);
  if (it == connections_.end()) return {};
  return {.received = it->second->received,
          .under_way = it->second->calls,
          .message_bytes = it->second->message_bytes.load(std::memory_order_relaxed)};
}

void CallLedger::Forget(const std::string& peer) {
  MutexLock lock(mu_);
  const auto it = connections_.find(peer);
  if (it == connections_.end()) return;
  it->second->gone = true;
  MaybeErase(*it->second);
}

int64_t CallLedger::held_bytes() const {
  MutexLock lock(mu_);
  return total_;
}

}  // namespace ulfd::server
