// A connection to a collector, of which gRPC reads no more than it is allowed to.
//
// Whichever thread of gRPC comes by reads what a peer sends, for as long as it sends: a client that
// is flooded may keep a thread that receives calls, and an assertion of gRPC 1.51 may end the
// process.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_COLLECTOR_LINK_H_
#define ULFD_SERVER_RPC_COLLECTOR_LINK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/file_descriptor.h"

namespace ulfd::server {

// A thread of its own passes bytes on between the collector and the end that gRPC has.
class CollectorLink {
 public:
  // To "host:port", for so many bytes that may come.  UNAVAILABLE: why not; some tenths of a second
  // at most, and what its name takes to be resolved.
  static absl::StatusOr<std::unique_ptr<CollectorLink>> Connect(const std::string& collector,
                                                                int64_t allowed);
  // Hangs up.
  ~CollectorLink();

  // The end for gRPC.  REQUIRES: it is there, as it is once.
  int TakeEnd() { return theirs_.release(); }
  // So many bytes may come from the collector from now on; after one more the link hangs up.
  void Allow(int64_t bytes) { allowed_.store(bytes); }
  // Whether one of the sides has hung up.
  bool over() const { return over_.load(); }

 private:
  CollectorLink(FileDescriptor collector, FileDescriptor ours, FileDescriptor theirs,
                int64_t allowed);
  void PassOn();

  const FileDescriptor collector_, ours_;
  FileDescriptor theirs_;
  std::atomic<int64_t> allowed_;
  std::atomic<bool> over_{false};
  std::thread thread_;  // Last: it uses everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_COLLECTOR_LINK_H_
