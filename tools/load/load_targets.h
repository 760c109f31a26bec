// The servers that a load goes to: their connections, and whether they want calls.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_LOAD_TARGETS_H_
#define ULFD_TOOLS_LOAD_LOAD_TARGETS_H_

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "tools/client/connection.h"

namespace ulfd::tools {

struct LoadTargetsOptions {
  Connector connector;
  std::vector<std::string> addresses;  // At least one.
  int channels = 1;                    // TCP connections to each.
  bool follow_health = false;          // Of each server as a whole.
};

// Picks are thread-safe.
class LoadTargets {
 public:
  // Connects in the background; with follow_health a thread per target watches it, and a target
  // counts as not serving until it says otherwise.
  explicit LoadTargets(LoadTargetsOptions options);
  // Ends the watches.  Channels end with the last call on them.
  ~LoadTargets();

  int size() const { return static_cast<int>(targets_.size()); }
  const std::string& address(int target) const { return targets_[target]->address; }
  const Connection& connection(int target) const { return targets_[target]->connections[0]; }
  // The next target in turn that serves; -1: none does.
  int Pick();
  // The next connection of the target in turn.
  grpc::GenericStub& StubOf(int target);
  // How often the target went from serving to not serving.
  int64_t left(int target) const { return targets_[target]->left.load(); }
  // Whether the target has no health service, and is taken for serving.
  bool without_health(int target) const { return targets_[target]->without_health.load(); }
  // Waits until a target serves, at most until `deadline`.
  bool WaitUntilServing(std::chrono::steady_clock::time_point deadline);

 private:
  struct Target {
    std::string address;
    std::vector<Connection> connections;
    std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
    std::atomic<uint32_t> next_stub{0};
    std::atomic<bool> serving{true}, without_health{false};
    std::atomic<int64_t> left{0};
    std::thread watcher;
  };
  void Watch(Target& target);
  // One stream, until it ends; false: the server has no health service.
  bool WatchOnce(Target& target);
  void SetServing(Target& target, bool serving);

  const LoadTargetsOptions options_;
  std::vector<std::unique_ptr<Target>> targets_;
  std::atomic<uint32_t> next_target_{0};
  Mutex mu_;
  CondVar changed_;  // A target's state, or stopping_.
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<grpc::ClientContext*> watches_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_LOAD_TARGETS_H_
