// Books of calls.
// SPDX-License-Identifier: Apache-2.0
#include "server/call_ledger.h"

#include <utility>

namespace ulfd::server {

class CallLedger::Connection {
 public:
  std::string peer, address;
  Caller* caller = nullptr;  // That of the address.
  int64_t calls = 0, bytes = 0, received = 0;
  // It is being closed: its bytes count no longer, or it would take others with it.
  bool closing = false;
  bool gone = false;  // Nobody looks at it any more.
};

namespace {

// "ipv4:127.0.0.1:4242" -> "ipv4:127.0.0.1"
std::string AddressOf(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

}  // namespace

CallLedger::CallLedger(const CallBudget& budget) : budget_(budget) {}

CallLedger::~CallLedger() = default;

CallLedger::Connection* CallLedger::Begin(const std::string& peer) {
  Connection *begun, *doomed;
  const char* why = "";
  std::string doomed_peer;
  {
    MutexLock lock(mu_);
    std::unique_ptr<Connection>& slot = connections_[peer];
    if (slot == nullptr) {
      slot = std::make_unique<Connection>();
      slot->peer = peer;
      slot->address = AddressOf(peer);
      slot->caller = &callers_[slot->address];
      ++slot->caller->connections;
    }
    begun = slot.get();
    begun->gone = false;
    ++begun->calls;
    ++begun->received;
    Add(*begun, kCallBytes);
    doomed = Check(*begun, why);
    if (doomed != nullptr) doomed_peer = doomed->peer;
  }
  if (doomed != nullptr && close_) close_(doomed_peer, why);
  return begun;
}

void CallLedger::Hold(Connection* connection, int64_t bytes) {
  Connection* doomed;
  const char* why = "";
  std::string doomed_peer;
  {
    MutexLock lock(mu_);
    Add(*connection, bytes);
    doomed = Check(*connection, why);
    if (doomed != nullptr) doomed_peer = doomed->peer;
  }
  if (doomed != nullptr && close_) close_(doomed_peer, why);
}

void CallLedger::End(Connection* connection, int64_t held_bytes) {
  MutexLock lock(mu_);
  Add(*connection, -kCallBytes - held_bytes);
  --connection->calls;
  MaybeErase(*connection);
}

void CallLedger::Add(Connection& connection, int64_t bytes) {
  connection.bytes += bytes;
  if (connection.closing) return;
  connection.caller->bytes += bytes;
  total_ += bytes;
}

CallLedger::Connection* CallLedger::Check(Connection& connection, const char*& why) {
  if (connection.closing) return nullptr;
  // Of those that count here the largest, not the one that happens to come last.
  const auto largest = [&](const std::string* address) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Connection* most = nullptr;
    for (const auto& [peer, other] : connections_) {
      if (other->closing || (address != nullptr && other->address != *address)) continue;
      if (most == nullptr || other->bytes > most->bytes) most = other.get();
    }
    return most;
  };
  Connection* doomed = nullptr;
  if (connection.calls > budget_.connection_calls) {
    doomed = &connection;
    why = "calls";
  } else if (connection.calls > 1 &&  // Its only reply is never too large.
             connection.bytes > budget_.connection_bytes) {
    doomed = &connection;
    why = "unsent";
  } else if (connection.caller->bytes > budget_.caller_bytes) {
    doomed = largest(&connection.address);
    why = "unsent";
  } else if (total_ > budget_.total_bytes) {
    doomed = largest(nullptr);
    why = "unsent";
  }
  if (doomed == nullptr) return nullptr;
  doomed->caller->bytes -= doomed->bytes;
  total_ -= doomed->bytes;
  doomed->closing = true;
  return doomed;
}

void CallLedger::MaybeErase(Connection& connection) {
  if (connection.calls > 0) return;
  // A connection that was closed for its calls may be followed by one from the same port.
  connection.closing = false;
  if (!connection.gone) return;
  if (--connection.caller->connections == 0) callers_.erase(connection.address);
  connections_.erase(std::string(connection.peer));
}

bool CallLedger::ReserveRequest(int64_t bytes) {
  const int64_t before = requests_.fetch_add(bytes, std::memory_order_relaxed);
  // The only request is never too large.
  if (before == 0 || before + bytes <= budget_.request_bytes) return true;
  ReleaseRequest(bytes);
  return false;
}

CallLedger::Counts CallLedger::CountsOf(const std::string& peer) const {
  MutexLock lock(mu_);
  const auto it = connections_.find(peer);
  if (it == connections_.end()) return {};
  return {it->second->received, it->second->calls};
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
