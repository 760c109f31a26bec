// ConnectionHandOver: hands accepted connections to gRPC, on a thread of its own.
//
// gRPC 1.51 may go on reading a connection on the thread that handed it over for as long as bytes
// come, and takes no other meanwhile.  The thread that accepts connections and looks at them must
// not be that one.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_CONNECTION_HAND_OVER_H_
#define ULFD_SERVER_RPC_CONNECTION_HAND_OVER_H_

#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"

namespace ulfd::server {

// Thread-safe.
class ConnectionHandOver {
 public:
  // What handing over a connection may cost while others wait, and how long the end waits for it.
  static constexpr std::chrono::milliseconds kLongest{200};

  // `hand` takes over the file descriptor, of one connection in each `pace` at most.
  ConnectionHandOver(std::function<void(int fd)> hand, std::chrono::nanoseconds pace);
  // Stop.
  ~ConnectionHandOver();

  void Add(FileDescriptor fd, const std::string& peer);
  // The peer of the connection that keeps others waiting, after kLongest of CPU time; "": none.
  std::string Holding();
  // Closes what still waits; once this returns, `hand` is not called any more.  `cut` ends the
  // connection with a peer whose hand-over goes on for kLongest.
  void Stop(const std::function<void(const std::string& peer)>& cut);

 private:
  struct Waiting {
    FileDescriptor fd;
    std::string peer;
  };
  void Loop();

  const std::function<void(int)> hand_;
  const std::chrono::nanoseconds pace_;
  Mutex mu_;
  CondVar changed_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  std::string handing_ ABSL_GUARDED_BY(mu_);  // The peer; "": none.
  std::chrono::nanoseconds begin_ ABSL_GUARDED_BY(mu_){};
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last: it uses everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_CONNECTION_HAND_OVER_H_
