// Wakes the repository's poll when something in a directory changes (inotify).  Only ever a hint:
// the poll finds every change by itself, a little later.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SYSTEM_DIRECTORY_WATCHER_H_
#define ULFD_SERVER_SYSTEM_DIRECTORY_WATCHER_H_

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ulfd::server {

class DirectoryWatcher {
 public:
  // Without `use_inotify`, or where the kernel grants no inotify instance (see status()), Wait only
  // ever times out or is woken.
  static absl::StatusOr<std::unique_ptr<DirectoryWatcher>> Create(bool use_inotify);
  ~DirectoryWatcher();
  DirectoryWatcher(const DirectoryWatcher&) = delete;
  DirectoryWatcher& operator=(const DirectoryWatcher&) = delete;

  // Watches exactly these directories from now on, symbolic links followed.  To be called after
  // every look, since a watch belongs to an inode and not to a path: a directory that was replaced
  // needs a new one.  A directory that does not exist is skipped.  Same thread as Wait.
  void Watch(const std::vector<std::string>& directories);

  enum class Reason { kTimeout, kChange, kWoken };
  // Returns after a change or a call of Wake, or after `timeout`.  Changes come in bursts (one file
  // copied is several events): returns when none came for 20 ms, at most 200 ms after the first.
  Reason Wait(std::chrono::milliseconds timeout);
  // Ends the current or the next Wait.  Any thread.
  void Wake();

  // Not OK: why some or all directories are found by polling only (RESOURCE_EXHAUSTED:
  // fs.inotify.max_user_watches or max_user_instances reached).  Same thread as Wait.
  const absl::Status& status() const { return status_; }
  // Number of directories watched.
  int watches() const { return static_cast<int>(watches_.size()); }

 private:
  DirectoryWatcher() = default;
  void Drain();

  int wake_fd_ = -1;
  int inotify_fd_ = -1;  // -1: polling only.
  std::set<int> watches_;
  absl::Status status_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SYSTEM_DIRECTORY_WATCHER_H_
