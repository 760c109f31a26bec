// ConnectionHandOver: hands accepted connections to gRPC one by one, on a thread of its own.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_CONNECTION_HAND_OVER_H_
#define ULFD_SERVER_RPC_CONNECTION_HAND_OVER_H_

#include <chrono>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"

namespace ulfd::server {

// Thread-safe.
class ConnectionHandOver {
 public:
  // `hand` takes over the file descriptor, of one connection in each `pace` at most.
  ConnectionHandOver(std::function<void(int fd)> hand, std::chrono::nanoseconds pace);
  // Stop.
  ~ConnectionHandOver();

  void Add(FileDescriptor fd);
  // Closes what still waits; once this returns, `hand` is not called any more.
  void Stop();

 private:
  void Loop();

  const std::function<void(int)> hand_;
  const std::chrono::nanoseconds pace_;
  Mutex mu_;
  CondVar changed_;
  std::deque<FileDescriptor> waiting_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last: it uses everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_CONNECTION_HAND_OVER_H_
